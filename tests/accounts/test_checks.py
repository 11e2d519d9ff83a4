"""System checks say what a project's models, databases and settings cannot promise, and what to change."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.db import connection, connections, models, transaction
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.test.utils import isolate_apps
from django.urls import path
from django.views import View

from accounts.models import AbstractAccount, Account, Entry
from django_lockstep.locking import VersionedManager, VersionedModel, VersionField, retry_on_conflict
from django_lockstep.locking.checks import check_databases, check_retries_in_views, check_tables
from tests.support.sessions import query
from tests.testapps.shop.models import BoxSeat, CheapSeat, OddSeat, Seat

pytestmark = pytest.mark.django_db

ALL = ["default"]


def ids(messages: list[Any]) -> list[str]:
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


def about(model: Any) -> list[str]:
    """What the databases' checks say of one model."""
    return ids([message for message in check_tables(None, databases=ALL) if message.obj is model])


def test_the_project_itself_is_clean() -> None:
    assert checks.run_checks(databases=ALL) == []


def test_no_database_is_touched_unless_it_is_named(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        checks.run_checks()


# Databases


@pytest.fixture
def add_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def add(engine: str) -> None:
        settings = connections.configure_settings({"default": {}, "another": {"ENGINE": engine, "NAME": "another"}})
        monkeypatch.setitem(connections.settings, "another", settings["another"])

    yield add
    if any(connection.alias == "another" for connection in connections.all(initialized_only=True)):
        del connections["another"]


def test_w001_a_database_that_ignores_row_locks(add_database: Any) -> None:
    add_database("django.db.backends.sqlite3")
    (message,) = check_databases(None)
    assert (message.id, message.obj) == ("lockstep.W001", "another")
    assert "sqlite" in message.msg


def test_w002_a_database_without_guards(add_database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add_database("django.db.backends.postgresql")
    monkeypatch.setattr(type(connections["another"]), "vendor", "mysql")
    assert set(ids(check_databases(None))) == {"lockstep.W002"}


# Models


def shop_model(label: str, /, *bases: Any, **members: Any) -> Any:
    """Return a model as the module of the shop would define it."""
    return type(label, bases or (VersionedModel,), {"__module__": "tests.testapps.shop.models", **members})


@isolate_apps("tests.testapps.shop")
def test_w003_a_manager_that_hides_the_query_set() -> None:
    class OwnManager(VersionedManager[Any]):
        pass

    assert ids(shop_model("Hidden", objects=models.Manager()).check()) == ["lockstep.W003"]
    assert ids(shop_model("Own", objects=OwnManager()).check()) == []


@pytest.mark.parametrize("model", [Seat, BoxSeat, OddSeat, Account])
def test_w004_a_model_without_its_guard(model: Any) -> None:
    assert about(model) == []
    table = connection.ops.quote_name(model._meta.db_table)
    query(f"DROP TRIGGER lockstep_version_guard ON {table}")
    assert about(model) == ["lockstep.W004"]


def test_w004_a_guard_that_is_disabled_does_not_count() -> None:
    query("ALTER TABLE shop_seat DISABLE TRIGGER lockstep_version_guard")
    assert about(Seat) == ["lockstep.W004"]
    assert about(CheapSeat) == []


@isolate_apps("tests.testapps.shop")
def test_w040_keys_that_are_given_by_hand() -> None:
    def name() -> Any:
        return models.CharField(max_length=10, primary_key=True)

    numbered, named = shop_model("Numbered"), shop_model("Named", name=name())
    of_one = shop_model("OfOne", numbered=models.OneToOneField(numbered, models.CASCADE, primary_key=True))
    inherited = shop_model("Inherited", named)
    decided = shop_model("Decided", name=name(), version=VersionField(start="clock"))
    assert [ids(model.check()) for model in (named, of_one)] == [["lockstep.W040"]] * 2
    assert [ids(model.check()) for model in (numbered, inherited, decided)] == [[]] * 3


@isolate_apps("tests.testapps.shop")
def test_a_method_of_a_project_that_has_the_hooks_name_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_table(self: Any, guests: int) -> None:
        raise AssertionError("nobody asked for a table")

    restaurant = shop_model("Restaurant", models.Model, check_table=check_table)
    monkeypatch.setattr(apps, "get_models", lambda: [restaurant])
    assert check_tables(None, databases=ALL) == []


@isolate_apps("tests.testapps.shop")
def test_a_table_that_is_not_there_yet_lacks_nothing() -> None:
    assert ids(shop_model("Planned").check_table("default")) == []


@isolate_apps("tests.testapps.shop", "django.contrib.auth", "django.contrib.contenttypes")
def test_e001_an_account_without_entries() -> None:
    wallet = shop_model("Wallet", AbstractAccount)
    assert "accounts.E001" in ids([m for m in wallet.check() if str(m.id).startswith("accounts.")])


def test_w007_entries_that_sql_can_change() -> None:
    assert about(Entry) == []
    query("DROP TRIGGER accounts_append_only ON accounts_entry")
    assert about(Entry) == ["accounts.W007"]


# Settings


@retry_on_conflict
def retried(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Retried(View):
    @retry_on_conflict(attempts=2)
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [
    path("plain", plain),
    path("retried", retried),
    path("class", Retried.as_view()),
    path("free", transaction.non_atomic_requests(retry_on_conflict(plain))),
]


@override_settings(ROOT_URLCONF=__name__)
def test_w005_retries_inside_a_transaction_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_retries_in_views(None) == []
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    messages = check_retries_in_views(None)
    assert ids(messages) == ["lockstep.W005"] * 2
    assert [message.msg.split(" is ")[0].rpartition(".")[2] for message in messages] == ["retried", "post"]
