"""The addresses that `manage.py demo` has in addition."""

from django.urls import path

from bank.login import log_in_as_admin
from bank.urls import urlpatterns as others

urlpatterns = [*others, path("login/", log_in_as_admin, name="demo-login")]
