"""The version's field by itself: in forms, and in models that are not versioned models."""

from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.forms import modelform_factory

from django_lockstep.locking import StaleVersionError, VersionField
from tests.django_lockstep.locking.looks import fresh
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db


def form_of(seat: Seat | None, data: dict[str, Any] | None = None) -> Any:
    return modelform_factory(Seat, fields=["guest", "version"])(data, instance=seat)


def sent(seat: Seat, **typed: str) -> dict[str, Any]:
    """Return what a browser sends that was shown the form of the seat."""
    return {"version": form_of(seat)["version"].value(), **typed}


def test_a_form_shows_the_version_hidden_and_signed() -> None:
    seat = Seat.objects.create()
    html = str(form_of(seat)["version"])
    assert 'type="hidden"' in html
    assert 'value="1:' in html


def test_a_form_saves_what_was_not_changed_since_it_was_shown() -> None:
    seat = Seat.objects.create()
    data = sent(seat, guest="Ada")
    form = form_of(fresh(seat), data)
    assert form.changed_data == ["guest"]
    form.save()
    assert (fresh(seat).guest, fresh(seat).version) == ("Ada", 2)
    with pytest.raises(StaleVersionError):
        form_of(fresh(seat), {**data, "guest": "Bob"}).save()


def test_a_form_that_is_shown_again_shows_the_version_that_was_sent() -> None:
    seat = Seat.objects.create()
    data = sent(seat, guest="A" * 51)
    seat.update_if_unchanged(row="B")
    form = form_of(fresh(seat), data)
    assert not form.is_valid()
    assert form["version"].value() == data["version"]


def test_a_form_of_a_new_object_has_no_version() -> None:
    assert form_of(None)["version"].value() == ""
    for sent_version in ({"version": ""}, {}):
        assert form_of(None, {"guest": "Ada", **sent_version}).save().version == 1


@pytest.mark.parametrize("version", ["1", "2:{signature}", "None"])
def test_a_version_of_somebody_elses_making_is_refused(version: str) -> None:
    seat = Seat.objects.create()
    signature = sent(seat)["version"].partition(":")[2]
    with pytest.raises(SuspiciousOperation):
        form_of(seat, {"guest": "Ada", "version": version.format(signature=signature)}).is_valid()


@pytest.fixture
def historical() -> Any:
    return MigrationLoader(connection).project_state().apps.get_model("shop", "Seat")


def test_rows_of_a_data_migration_begin_at_one(historical: Any) -> None:
    assert historical.objects.create().version == 1
    assert Seat.objects.get().version == 1


def test_a_data_migration_never_lowers_a_version(historical: Any) -> None:
    seat = Seat.objects.create()
    row = historical.objects.get()
    for guest in ("Ada", "Bob"):
        assert seat.update_if_unchanged(guest=guest)
    row.row = "B"
    row.save()
    assert fresh(seat).version == 4
    assert not seat.update_if_unchanged(guest="Eve")


def test_it_is_a_plain_column() -> None:
    field = Seat._meta.get_field("version")
    assert field.get_internal_type() == "PositiveBigIntegerField"
    assert isinstance(field, models.PositiveBigIntegerField)


@pytest.mark.parametrize(("steps", "rewrites"), [(["clock"], True), ([1, "clock"], False)])
def test_a_table_that_gets_a_clock_in_two_steps_is_not_rewritten(steps: list[Any], rewrites: bool) -> None:
    def filenode() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_relation_filenode('shop_ware')")
            return int(cursor.fetchone()[0])

    create = migrations.CreateModel("Ware", [("id", models.BigAutoField(primary_key=True))])
    first, *others = [VersionField(start=start) for start in steps]
    changes: list[Any] = [migrations.AddField("Ware", "version", first)]
    changes += [migrations.AlterField("Ware", "version", field) for field in others]
    state, before = ProjectState(), 0
    for operation in [create, *changes]:
        after = state.clone()
        operation.state_forwards("shop", after)
        with connection.schema_editor() as editor:
            operation.database_forwards("shop", editor, state, after)
        state = after
        if operation is create:
            before = filenode()
            state.apps.get_model("shop", "Ware").objects.create()
    assert (filenode() != before) is rewrites
    ware = state.apps.get_model("shop", "Ware")
    old, new = ware.objects.get(), ware.objects.create()
    new.refresh_from_db()
    assert new.version > 10**15
    assert rewrites or old.version == 1
