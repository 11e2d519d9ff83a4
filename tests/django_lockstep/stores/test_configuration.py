"""``LOCKSTEP_STORES``, and its checks that ask no server."""

import sys
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_lockstep.stores.checks import check_stores
from django_lockstep.stores.conf import get_store


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "TABLE must be the name of a table, not None"),
        ({"TABLE": ""}, "TABLE must be the name of a table, not ''"),
        ({"TABLE": ["t"]}, r"TABLE must be a string, not \['t'\]"),
        ({"TABLE": "t", "REGION": 1}, "REGION must be a string, not 1"),
        ("t", "must be a mapping of options, not 't'"),
        ({"TABLE": "t", "TABEL": "t"}, "unknown TABEL; a DynamoDB store has ENDPOINT_URL,"),
        ({"TABLE": "t", "TIMEOUT": 0}, "TIMEOUT must be finite and greater than zero"),
        ({"BACKEND": "paper"}, "BACKEND.* must be one of dynamodb, postgresql, not 'paper'"),
        ({"BACKEND": "postgresql", "TABLE": "t"}, "unknown TABLE; a store on PostgreSQL has DATABASE"),
        ({"BACKEND": "postgresql", "DATABASE": "nowhere"}, "alias in DATABASES, not 'nowhere'"),
    ],
)
def test_wrong_options_are_named(settings: Settings, options: Any, text: str) -> None:
    settings.LOCKSTEP_STORES = {"tested": options}
    with pytest.raises(ImproperlyConfigured, match=text):
        get_store("tested")
    (message,) = check_stores(None)
    assert message.id == "lockstep.E050"


def test_a_missing_extra_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LOCKSTEP_STORES = {"tested": {"TABLE": "no boto3"}}
    monkeypatch.setitem(sys.modules, "boto3", None)
    (message,) = check_stores(None)
    assert message.id == "lockstep.E051"
    with pytest.raises(ImproperlyConfigured, match=r"install django-lockstep\[dynamodb\]"):
        get_store("tested").get("k")


def test_create_stores_refuses_what_it_cannot_create(settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": {"TABLE": "never asked"}}
    with pytest.raises(CommandError, match="manage.py migrate does it"):
        call_command("create_stores", "postgresql")
    with pytest.raises(CommandError, match="no store 'nowhere'"):
        call_command("create_stores", "nowhere")


def test_the_same_options_are_the_same_store(settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": {"TABLE": "t"}}
    store = get_store("tested")
    assert get_store("tested") is store
    settings.LOCKSTEP_STORES = {"tested": {"TABLE": "u"}}
    assert get_store("tested") is not store
