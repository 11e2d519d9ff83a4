"""What a room needs from the settings is told by a check, before a page fails."""

import sys
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core import checks
from django.urls import include, path

from django_lockstep.admin.versioned import VersionedModelAdmin
from django_lockstep.checks import check_lab_pages, check_lease_functions, check_middleware
from django_lockstep.leases import lease
from tests.testapps.press.models import Author
from tests.testapps.shop.models import Seat

MIDDLEWARE = "django_lockstep.editing.writers.EditLockMiddleware"

urlpatterns = [path("races/", include("django_lockstep.lab.urls"))]


@pytest.fixture
def without(settings: Any) -> Any:
    """Take an app out of the settings."""

    def take_out(name: str) -> None:
        settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != name]

    return take_out


def found(messages: list[Any]) -> list[tuple[str, str]]:
    return [(message.id, message.hint) for message in messages]


def test_this_project_has_what_it_uses() -> None:
    assert lease is not None
    assert [message.id for message in checks.run_checks() if str(message.id).startswith("lockstep.")] == []


def test_the_versioned_admin_needs_the_library(without: Any) -> None:
    admin = VersionedModelAdmin(Seat, AdminSite())
    assert admin.check() == []
    without("django_lockstep")
    assert found(admin.check()) == [("lockstep.E030", "Add 'django_lockstep' to INSTALLED_APPS.")]


def test_edit_locked_models_need_their_app(without: Any) -> None:
    without("django_lockstep.editing")
    expected = ("lockstep.E024", "Add 'django_lockstep.editing' to INSTALLED_APPS.")
    assert expected in found(Author.check())


def test_the_middleware_of_editing_needs_its_app(without: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert check_middleware(None) == []
    without("django_lockstep.editing")
    assert found(check_middleware(None)) == [("lockstep.E025", "Add 'django_lockstep.editing' to INSTALLED_APPS.")]


def test_the_pages_of_the_lab_need_their_app(without: Any, settings: Any) -> None:
    without("django_lockstep.lab")
    settings.ROOT_URLCONF = __name__
    assert found(check_lab_pages(None)) == [("lockstep.E031", "Add 'django_lockstep.lab' to INSTALLED_APPS.")]


def test_a_project_without_pages_of_the_lab_needs_no_lab(without: Any, settings: Any) -> None:
    without("django_lockstep.lab")
    settings.ROOT_URLCONF = "tests.django_lockstep.editing.urls"
    assert check_lab_pages(None) == []


def test_leases_need_their_app(without: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_lease_functions(None) == []
    without("django_lockstep.leases")
    assert found(check_lease_functions(None)) == [("lockstep.W022", "Add 'django_lockstep.leases' to INSTALLED_APPS.")]
    monkeypatch.delitem(sys.modules, "django_lockstep.leases.stores")
    assert check_lease_functions(None) == []
