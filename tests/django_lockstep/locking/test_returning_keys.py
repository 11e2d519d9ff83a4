"""A row that is deleted and made again under the same key is another row."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import serializers
from django.db import connection
from django.utils import timezone

from django_lockstep.locking import StaleVersionError, VersionField
from tests.django_lockstep.locking.looks import fresh
from tests.testapps.shop.models import Locker

pytestmark = pytest.mark.django_db


def by_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop_locker (number, guest) VALUES ('7', 'Ada')")


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
    "SQL": by_sql,
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
    (made,) = Locker.objects.bulk_create([Locker(number="7")])
    saved = Locker.objects.create(number="8")
    put = Locker.objects.put_if_unchanged("9", 0)
    assert [made.version, saved.version, put] == list(Locker.objects.order_by("pk").values_list("version", flat=True))
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
