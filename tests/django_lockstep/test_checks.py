"""What a room needs from the settings is told by a check, before a page fails."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError, connection
from django.urls import include, path

from django_lockstep.admin.versioned import VersionedModelAdmin
from django_lockstep.checks import check_imported_rooms, check_lab_pages, check_middleware
from django_lockstep.idempotency import idempotent
from django_lockstep.leases import lease
from django_lockstep.leases.checks import check_guards, check_storage
from django_lockstep.leases.database import lease_model
from tests.support.sessions import query
from tests.testapps.press.models import Author
from tests.testapps.shop.models import Seat, Ticket

MIDDLEWARE = "django_lockstep.editing.writers.EditLockMiddleware"

urlpatterns = [path("races/", include("django_lockstep.lab.urls"))]


def without(app: str, settings: Any) -> None:
    """Take an app out of the settings."""
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != app]


def test_this_project_has_what_it_uses() -> None:
    assert None not in (lease, idempotent)
    assert [message.id for message in checks.run_checks() if str(message.id).startswith("lockstep.")] == []


@pytest.mark.parametrize(
    ("identifier", "app", "check"),
    [
        ("lockstep.E030", "django_lockstep", lambda: VersionedModelAdmin(Seat, AdminSite()).check()),
        ("lockstep.E024", "django_lockstep.editing", Author.check),
        ("lockstep.E025", "django_lockstep.editing", lambda: check_middleware(None)),
        ("lockstep.E031", "django_lockstep.lab", lambda: check_lab_pages(None)),
        ("lockstep.W022", "django_lockstep.leases", lambda: check_imported_rooms(None)),
        ("lockstep.W023", "django_lockstep.idempotency", lambda: check_imported_rooms(None)),
    ],
)
def test_what_is_used_needs_its_app(settings: Any, identifier: str, app: str, check: Callable[[], Any]) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.ROOT_URLCONF = __name__
    assert check() == []
    without(app, settings)
    assert (identifier, f"Add '{app}' to INSTALLED_APPS.") in [(message.id, message.hint) for message in check()]


def test_what_is_not_used_needs_none(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = "tests.django_lockstep.editing.urls"
    without("django_lockstep.lab", settings)
    assert check_lab_pages(None) == []
    for app, module in {"leases": "stores", "idempotency": "operations"}.items():
        without(f"django_lockstep.{app}", settings)
        monkeypatch.delitem(sys.modules, f"django_lockstep.{app}.{module}")
    assert check_imported_rooms(None) == []


# System checks say where leases promise less, and what is missing


pytestmark = pytest.mark.django_db


def ids(messages: list[Any]) -> list[str]:
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


def test_w020_a_database_without_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(check_guards(None)) == []
    monkeypatch.setattr(type(connection._connections["default"]), "vendor", "sqlite")  # type: ignore[attr-defined]
    assert ids(check_guards(None)) == ["lockstep.W020"]


@pytest.mark.parametrize(
    "missing",
    [
        "SEQUENCE lockstep_leases_lease_token",
        "FUNCTION lockstep_leases_lease_acquire",
        "FUNCTION lockstep_leases_lease_release",
    ],
)
def test_e020_a_table_without_its_storage(missing: str) -> None:
    assert ids(check_storage(None, databases=["default"])) == []
    query(f"DROP {missing}")
    assert ids(check_storage(None, databases=["default"])) == ["lockstep.E020"]


def test_leases_without_their_functions_or_their_app_say_what_to_do(settings: Any) -> None:
    query("DROP FUNCTION lockstep_leases_lease_acquire")
    with pytest.raises(ProgrammingError) as caught, lease("nightly", ttl=5):
        pass
    assert caught.value.__notes__ == ["Leases need their table and its functions: run manage.py migrate."]
    without("django_lockstep.leases", settings)
    with pytest.raises(ImproperlyConfigured, match=r"add 'django_lockstep\.leases' to INSTALLED_APPS"):
        lease_model.__wrapped__()


def test_e032_an_admin_of_a_model_without_a_version() -> None:
    assert ids(VersionedModelAdmin(Ticket, AdminSite()).check()) == ["lockstep.E032"]


def test_no_database_is_asked_unless_it_is_named(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert check_storage(None) == []


def test_a_table_that_is_not_there_lacks_nothing() -> None:
    query("ALTER TABLE lockstep_leases_lease RENAME TO elsewhere")
    query("DROP FUNCTION lockstep_leases_lease_acquire")
    assert ids(check_storage(None, databases=["default"])) == []
