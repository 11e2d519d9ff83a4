"""Each test specifies one hole closed: it holds for our model, and fails for a model of django-concurrency alone."""

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from concurrency.api import disable_concurrency
from concurrency.exceptions import RecordModifiedError
from django.core.management import call_command
from django.db import connection, models, transaction
from django.db.migrations.state import ModelState, StateApps
from django.test.utils import CaptureQueriesContext

from django_lockstep.locking import StaleVersionError
from tests.testapps.shop.models import PlainSeat, Seat

PLAIN = pytest.param(
    PlainSeat, marks=pytest.mark.xfail(strict=True, reason="django-concurrency 2.8.1 alone"), id="plain"
)


@pytest.fixture(params=[pytest.param(Seat, id="ours"), PLAIN])
def model(request: pytest.FixtureRequest, db: None) -> Any:
    """The model under test."""
    return request.param


@pytest.fixture
def seat(model: Any) -> Any:
    """A row of it, as it was created."""
    return model.objects.create(guest="nobody")


@pytest.fixture
def stale(seat: Any) -> Any:
    """An instance of the same row, read before anything happens to it."""
    return type(seat).objects.get(pk=seat.pk)


def save(seat: Any, **options: Any) -> None:
    seat.guest = "Ada"
    seat.save(**options)


def bulk_update(seat: Any) -> None:
    seat.guest = "Ada"
    type(seat).objects.bulk_update([seat], ["guest"])


def update_by_sql(seat: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {seat._meta.db_table} SET guest = 'Ada'")


@pytest.mark.parametrize(
    "write",
    [
        bulk_update,
        lambda seat: type(seat).objects.filter(pk=seat.pk).update(guest="Ada"),
        update_by_sql,
        lambda seat: save(seat, update_fields=["guest"]),
    ],
    ids=["bulk_update", "queryset.update", "raw SQL", "update_fields"],
)
def test_every_write_counts_as_a_change(model: Any, seat: Any, stale: Any, write: Callable[[Any], None]) -> None:
    write(seat)
    stale.row = "B"
    with pytest.raises(RecordModifiedError):
        stale.save()
    assert model.objects.filter(guest="Ada", row="A", version=2).exists()


@pytest.mark.parametrize("how", ["only", "defer", "refresh"])
def test_without_its_version_an_instance_is_refused_before_any_sql(model: Any, seat: Any, how: str) -> None:
    if how == "only":
        stale = model.objects.only("guest").get(pk=seat.pk)
    elif how == "defer":
        stale = model.objects.defer("version").get(pk=seat.pk)
    else:
        stale = model.objects.get(pk=seat.pk)
    seat.row = "B"
    seat.save()
    if how == "refresh":
        stale.refresh_from_db(fields=["version"])
    stale.guest = "Ada"
    with CaptureQueriesContext(connection) as captured, pytest.raises(ValueError, match="version"):
        stale.save()
    assert not captured.captured_queries
    stale.refresh_from_db()
    stale.guest = "Ada"
    if how == "refresh":
        stale.save()


@pytest.mark.parametrize("update_fields", [None, ["guest"]])
def test_a_deleted_row_does_not_come_back_by_a_stale_save(
    model: Any, seat: Any, stale: Any, update_fields: Any
) -> None:
    model.objects.filter(pk=seat.pk).delete()
    with pytest.raises(model.DoesNotExist):
        save(stale, update_fields=update_fields)
    assert not model.objects.exists()


def test_a_changed_row_is_not_deleted(model: Any, seat: Any, stale: Any) -> None:
    save(seat)
    with pytest.raises(RecordModifiedError):
        stale.delete()
    assert model.objects.get().guest == "Ada"


def test_a_switch_that_is_turned_elsewhere_in_the_process_does_not_take_the_guard_away(seat: Any, stale: Any) -> None:
    save(seat)
    with disable_concurrency(), pytest.raises(RecordModifiedError):
        save(stale)


def test_a_conflict_leaves_the_surrounding_transaction_usable(model: Any, seat: Any, stale: Any) -> None:
    save(seat)
    stale.guest = "Bob"
    with transaction.atomic():
        with pytest.raises(RecordModifiedError):
            stale.save()
        model.objects.create(guest="Eve")
    assert set(model.objects.values_list("guest", flat=True)) == {"Ada", "Eve"}


def test_a_conflict_can_be_told_to_another_process(seat: Any, stale: Any) -> None:
    save(seat)
    with pytest.raises(RecordModifiedError) as caught:
        save(stale)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (type(copy), str(copy)) == (type(caught.value), str(caught.value))


# The version's field.


def test_known_options_of_the_field_are_obeyed(model: Any) -> None:
    field = type(model._meta.get_field("version"))(editable=False, db_index=True)
    assert (field.editable, field.db_index) == (False, True)
    assert field.deconstruct()[3].items() >= {"editable": False, "db_index": True}.items()


def test_other_options_of_the_field_are_refused(model: Any) -> None:
    with pytest.raises(TypeError, match="unique"):
        type(model._meta.get_field("version"))(unique=True)


def test_rows_begin_at_1_in_a_table_that_gets_its_version_later(model: Any) -> None:
    version = model._meta.get_field("version").clone()
    table = ModelState("shop", "OldSeat", [("id", models.BigAutoField(primary_key=True)), ("version", version)])
    old = table.clone().render(StateApps([], {}))
    with connection.schema_editor() as editor, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop_oldseat (id bigserial PRIMARY KEY)")
        cursor.execute("INSERT INTO shop_oldseat DEFAULT VALUES")
        editor.add_field(old, old._meta.get_field("version"))
        cursor.execute("SELECT version FROM shop_oldseat")
        assert cursor.fetchall() == [(1,)]


def test_a_row_of_another_program_begins_at_1(model: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {model._meta.db_table} (row, guest, price, wishes) VALUES ('', '', 0, '[]')")
    assert model.objects.get().version == 1


# Fixtures: over a row that exists ``loaddata`` brings no version back that an instance may have been read with.


def dump(model: Any) -> list[Any]:
    call_command("dumpdata", model._meta.label, stdout=(out := io.StringIO()))
    rows: list[Any] = json.loads(out.getvalue())
    return rows


@pytest.fixture
def fixture(model: Any, seat: Any, tmp_path: Path) -> Path:
    path = tmp_path / "seats.json"
    path.write_text(json.dumps(dump(model)))
    return path


def test_over_a_row_that_exists_loaddata_writes_all_but_the_version(model: Any, seat: Any, fixture: Path) -> None:
    (before,) = dump(model)
    save(seat)
    call_command("loaddata", str(fixture), verbosity=0)
    (after,) = dump(model)
    assert after["fields"].pop("version") > seat.version > before["fields"].pop("version")
    assert after == before


def test_an_instance_that_was_read_before_a_fixture_was_loaded_is_stale(model: Any, seat: Any, fixture: Path) -> None:
    save(seat)
    late = model.objects.get()
    call_command("loaddata", str(fixture), verbosity=0)
    current = model.objects.get()
    current.guest = "Bob"
    current.save()

    late.guest = "Eve"
    with pytest.raises(StaleVersionError):
        late.save()
    assert model.objects.get().guest == "Bob"
