"""The version's field by itself: in forms, and in models that are not versioned models."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import serializers
from django.core.exceptions import SuspiciousOperation
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models import F
from django.forms import modelform_factory
from django.utils import timezone

from django_lockstep.locking import StaleVersionError, VersionedModel, VersionField
from tests.django_lockstep.locking.looks import fresh, statements
from tests.support.sessions import query
from tests.testapps.shop.models import Locker, Seat, Turnstile

pytestmark = pytest.mark.django_db


def form_of(seat: Seat | None, data: dict[str, Any] | None = None) -> Any:
    return modelform_factory(Seat, fields=["guest", "version"])(data, instance=seat)


def sent(seat: Seat, **typed: str) -> dict[str, Any]:
    """Return what a browser sends that was shown the form of the seat."""
    return {"version": form_of(seat)["version"].value(), **typed}


def test_a_form_shows_the_version_hidden_and_signed(seat: Seat) -> None:
    html = str(form_of(seat)["version"])
    assert 'type="hidden"' in html
    assert 'value="1:' in html


def test_a_form_saves_what_was_not_changed_since_it_was_shown(seat: Seat) -> None:
    data = sent(seat, guest="Ada")
    form = form_of(fresh(seat), data)
    assert form.changed_data == ["guest"]
    form.save()
    assert (fresh(seat).guest, fresh(seat).version) == ("Ada", 2)
    with pytest.raises(StaleVersionError):
        form_of(fresh(seat), {**data, "guest": "Bob"}).save()


def test_a_form_that_is_shown_again_shows_the_version_that_was_sent(seat: Seat) -> None:
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
def test_a_version_of_somebody_elses_making_is_refused(seat: Seat, version: str) -> None:
    signature = sent(seat)["version"].partition(":")[2]
    with pytest.raises(SuspiciousOperation):
        form_of(seat, {"guest": "Ada", "version": version.format(signature=signature)}).is_valid()


@pytest.fixture
def historical() -> Any:
    return MigrationLoader(connection).project_state().apps.get_model("shop", "Seat")


def test_rows_of_a_data_migration_begin_at_one(historical: Any) -> None:
    assert historical.objects.create().version == 1
    assert Seat.objects.get().version == 1


def test_a_data_migration_never_lowers_a_version(seat: Seat, historical: Any) -> None:
    row = historical.objects.get()
    for guest in ("Ada", "Bob"):
        assert seat.update_if_unchanged(guest=guest)
    row.row = "B"
    row.save()
    assert fresh(seat).version == 4
    assert not seat.update_if_unchanged(guest="Eve")


def test_its_options_are_obeyed_or_refused() -> None:
    field: Any = VersionField(editable=False, db_index=True)
    assert (field.editable, field.db_index) == (False, True)
    assert field.deconstruct()[3].items() >= {"editable": False, "db_index": True}.items()
    with pytest.raises(TypeError, match="unique"):
        VersionField(unique=True)


@pytest.mark.parametrize(("steps", "rewrites"), [(["clock"], True), ([1, "clock"], False)])
def test_a_table_that_gets_a_clock_in_two_steps_is_not_rewritten(steps: list[Any], rewrites: bool) -> None:
    def filenode() -> int:
        return int(query("SELECT pg_relation_filenode('shop_ware')"))

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


# Columns whose change is not a new version: counters, times of last use


@pytest.fixture
def gate() -> Turnstile:
    return Turnstile.objects.create()


def count_up(gate: Turnstile, **values: Any) -> None:
    Turnstile.objects.filter(pk=gate.pk).update(**{"passages": F("passages") + 1, **values})


def test_a_save_of_them_alone_writes_them_and_keeps_the_version(gate: Turnstile) -> None:
    gate.passed_at = timezone.now()
    gate.save()
    assert (fresh(gate).version, gate.version, fresh(gate).passed_at) == (1, 1, gate.passed_at)
    assert statements(gate.save) == ["SELECT"]


def test_so_does_a_save_that_names_them(gate: Turnstile) -> None:
    gate.passages, gate.guest = 5, "Ada"
    gate.save(update_fields=["passages"])
    assert (fresh(gate).version, fresh(gate).passages, fresh(gate).guest) == (1, 5, "")


def test_the_querysets_update_and_sql_keep_it_too(gate: Turnstile) -> None:
    count_up(gate)
    query("UPDATE shop_turnstile SET passages = passages + 1")
    assert (fresh(gate).version, fresh(gate).passages) == (1, 2)


def test_a_write_of_others_as_well_counts(gate: Turnstile) -> None:
    gate.passages, gate.guest = 5, "Ada"
    gate.save()
    count_up(gate, guest="Bob")
    assert (gate.version, fresh(gate).version, fresh(gate).passages) == (2, 3, 6)


def test_a_save_of_others_does_not_take_back_what_was_counted_meanwhile(gate: Turnstile) -> None:
    count_up(gate)
    gate.guest = "Ada"
    gate.save()
    assert (fresh(gate).guest, fresh(gate).passages, fresh(gate).version) == ("Ada", 1, 2)


def test_a_stale_save_of_them_is_refused(gate: Turnstile) -> None:
    stale = fresh(gate)
    gate.guest = "Ada"
    gate.save()
    stale.passages = 5
    with pytest.raises(StaleVersionError):
        stale.save()
    assert fresh(gate).passages == 0


def test_force_write_counts_all_the_same(gate: Turnstile) -> None:
    gate.passages = 5
    gate.save(force_write=True)
    assert (fresh(gate).passages, fresh(gate).version, gate.version) == (5, 2, 2)


def test_the_names_are_part_of_migrations_but_not_of_the_table() -> None:
    field = VersionField(uncounted=["passages"])
    *_, options = field.deconstruct()
    assert options["uncounted"] == ("passages",)
    assert "uncounted" in field.non_db_attrs


@pytest.mark.parametrize("name", ["typo", "id", "version"])
def test_a_name_that_is_not_a_column_beside_it_is_an_error(name: str) -> None:
    model = type(
        f"Gate{name.title()}",
        (VersionedModel,),
        {
            "__module__": __name__,
            "Meta": type("Meta", (), {"app_label": f"gates_{name}"}),
            "version": VersionField(uncounted=[name]),
            "guest": models.CharField(max_length=50),
        },
    )
    assert [message.id for message in model.check(databases=None)] == ["lockstep.E040"]  # type: ignore[attr-defined]


# A row that is deleted and made again under the same key is another row


def by_fixture() -> None:
    text = serializers.serialize("json", [Locker(number="7", version=1, guest="Ada")])
    for saved in serializers.deserialize("json", text):
        saved.save()


MAKERS: dict[str, Callable[[], Any]] = {
    "create": lambda: Locker.objects.create(number="7", guest="Ada"),
    "bulk_create": lambda: Locker.objects.bulk_create([Locker(number="7", guest="Ada")]),
    "put_if_unchanged": lambda: Locker.objects.put_if_unchanged("7", 0, guest="Ada"),
    "older state made by hand": lambda: Locker(number="7", version=1, guest="Ada").save(),
    "fixture": by_fixture,
    "SQL": lambda: query("INSERT INTO shop_locker (number, guest) VALUES ('7', 'Ada')"),
}
every_way = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_way
def test_no_stale_write_of_the_old_row_passes(make: Any) -> None:
    old = Locker.objects.create(number="7", guest="Eve")
    assert Locker.objects.get().delete()
    make()
    assert not old.update_if_unchanged(guest="Bob")
    old.guest = "Bob"
    with pytest.raises(StaleVersionError):
        old.save()
    with pytest.raises(StaleVersionError):
        old.delete()
    assert Locker.objects.get().guest == "Ada"


def test_versions_that_the_old_row_was_given_do_not_return() -> None:
    old = Locker.objects.create(number="7")
    seen = []
    for guest in ("Ada", "Bob"):
        seen.append(old.version)
        assert old.update_if_unchanged(guest=guest)
    old.delete()
    new = Locker.objects.create(number="7")
    for guest in ("Cyd", "Dan", "Eve"):
        assert new.version not in seen
        assert new.update_if_unchanged(guest=guest)


@every_way
def test_rows_begin_at_the_clock_of_the_database_and_go_on_by_one(make: Any) -> None:
    make()
    locker = Locker.objects.get()
    began = datetime.fromtimestamp(locker.version / 1e6, tz=timezone.get_default_timezone())
    assert abs(timezone.now() - began) < timedelta(hours=1)
    locker.guest = "Bob"
    locker.save()
    assert fresh(locker).version == locker.version
    assert Locker.objects.filter(pk="7").update(guest="Cyd")
    assert fresh(locker).version == locker.version + 1


def test_new_instances_know_their_version() -> None:
    (bulk,) = Locker.objects.bulk_create([Locker(number="7")])
    saved = Locker.objects.create(number="8")
    put = Locker.objects.put_if_unchanged("9", 0)
    assert [bulk.version, saved.version, put] == list(Locker.objects.order_by("pk").values_list("version", flat=True))
    assert Locker().version == 0


def test_a_copy_begins_anew() -> None:
    locker = Locker.objects.create(number="7")
    before, locker.pk = locker.version, "8"
    locker.save()
    assert fresh(locker).version == locker.version > before


def test_another_start_is_refused() -> None:
    with pytest.raises(ValueError, match="start must be 1 or 'clock', not 'now'"):
        VersionField(start="now")  # type: ignore[arg-type]


def test_the_start_is_part_of_migrations() -> None:
    *_, options = VersionField(start="clock").deconstruct()
    assert (options["start"], "db_default" in options) == ("clock", False)
    assert VersionField(**options).deconstruct()[3] == options
