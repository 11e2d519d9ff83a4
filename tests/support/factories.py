"""Factories of what tests need."""

from decimal import Decimal
from typing import Any

import factory.declarations
import factory.django
from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import Account


class UserFactory(factory.django.DjangoModelFactory[Any]):
    """A user who can do nothing in particular."""

    class Meta:
        model = settings.AUTH_USER_MODEL

    username = factory.declarations.Sequence("user-{}".format)


def client_of(user: Any) -> Client:
    """Return a client in which the user is logged in."""
    client = Client()
    client.force_login(user)
    return client


def client_of_staff(*permissions: str) -> Client:
    """Return the client of somebody who may see the admin and has these permissions alone."""
    user = UserFactory.create(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return client_of(user)


class AccountFactory(factory.django.DjangoModelFactory[Account]):
    """An account as a new customer gets it; amounts may be given as int or string."""

    class Meta:
        model = Account

    user = factory.declarations.SubFactory(UserFactory)
    balance = Decimal("0.00")
    overdraft_limit = Decimal("0.00")

    @classmethod
    def _create(cls, model_class: type[Account], *args: Any, **kwargs: Any) -> Account:
        for name in ("balance", "overdraft_limit"):
            kwargs[name] = Decimal(kwargs[name]).quantize(Decimal("0.01"))
        created: Account = super()._create(model_class, *args, **kwargs)
        return created
