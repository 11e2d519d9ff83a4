"""Users who are known by their address."""

from typing import Any, ClassVar

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.db import models


class PersonManager(BaseUserManager["Person"]):
    """Makes users who have no name to log in with."""

    def create_superuser(self, email: str, **values: Any) -> "Person":
        return self.create(email=email, is_staff=True, is_superuser=True, **values)


class Person(AbstractUser):
    """A user whose e-mail address is the name to log in with."""

    username = None  # type: ignore[assignment]
    email = models.EmailField(unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = PersonManager()  # type: ignore[assignment]
