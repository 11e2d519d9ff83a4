"""Requests as views get them that require a login."""

from django.contrib.auth.models import User
from django.http import HttpRequest


class UserRequest(HttpRequest):
    user: User
