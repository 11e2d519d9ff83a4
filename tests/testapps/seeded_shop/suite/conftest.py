"""Fixtures of the shop's tests."""

from types import ModuleType

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ..correct import services as correct_services
from ..racing import services as racing_services


@pytest.fixture(params=["racing", "correct"])
def shop(request: pytest.FixtureRequest) -> str:
    """The label of the app that is tested."""
    return str(request.param)


@pytest.fixture
def services(shop: str) -> ModuleType:
    return {"racing": racing_services, "correct": correct_services}[shop]


@pytest.fixture
def customer(db: None) -> User:
    return User.objects.create_user("customer", password="secret")


@pytest.fixture
def customer_client(customer: User) -> Client:
    """A client that is logged in."""
    client = Client()
    client.force_login(customer)
    return client
