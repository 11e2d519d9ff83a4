"""People and tables for the tests of editing."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from tests.support.factories import UserFactory


@pytest.fixture
def ada(db: None) -> Any:
    return UserFactory.create(username="ada")


@pytest.fixture
def bob(db: None) -> Any:
    return UserFactory.create(username="bob")


@pytest.fixture
def chief(db: None) -> Any:
    """Somebody who may take over."""
    chief = UserFactory.create(username="chief")
    chief.user_permissions.add(Permission.objects.get(codename="take_over_editlock"))
    return chief
