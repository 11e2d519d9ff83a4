"""The guard raises the version for writers that never saw an instance, once and only for a change."""

from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.state import ProjectState
from django.test.utils import isolate_apps

from accounts.models import Account
from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard, VersionedModel, VersionField, lock_row
from tests.django_lockstep.locking.looks import every_kind
from tests.testapps.purses.models import Purse, PurseEntry
from tests.testapps.shop.models import BoxSeat, Seat

pytestmark = pytest.mark.django_db


def sql(text: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, params)


def version(row: Any) -> int:
    return int(type(row).objects.get(pk=row.pk).version)


@every_kind
def test_an_update_of_the_query_set_raises_it_once(make: Any) -> None:
    row, bystander = make(), Seat.objects.create()
    type(row).objects.filter(pk=row.pk).update(guest="Ada")
    assert (version(row), version(bystander)) == (2, 1)
    type(row).objects.filter(pk=row.pk).update(guest="Ada")
    assert version(row) == 2


def test_a_writer_that_sets_the_version_is_not_counted_twice() -> None:
    seat = Seat.objects.create()
    sql("UPDATE shop_seat SET guest = 'Ada', version = version + 1 WHERE id = %s", seat.pk)
    assert version(seat) == 2
    assert Seat.objects.get().update_if_unchanged(guest="Bob")
    assert version(seat) == 3


@pytest.mark.parametrize("lower", [1, 4])
def test_a_version_never_falls(lower: int) -> None:
    seat = Seat.objects.create()
    sql("UPDATE shop_seat SET version = 5 WHERE id = %s", seat.pk)
    sql("UPDATE shop_seat SET version = %s, guest = 'Ada' WHERE id = %s", lower, seat.pk)
    assert version(seat) == 6


def test_an_update_that_changes_nothing_changes_nothing() -> None:
    seat = Seat.objects.create(guest="Ada", wishes=["aisle"])
    sql("UPDATE shop_seat SET guest = guest, price = 10.00, wishes = '[\"aisle\"]'")
    assert version(seat) == 1


def test_an_upsert_raises_it() -> None:
    seat = Seat.objects.create()
    Seat.objects.bulk_create(
        [Seat(pk=seat.pk, guest="Ada")], update_conflicts=True, unique_fields=["id"], update_fields=["guest"]
    )
    assert version(seat) == 2


# A row in two tables


def test_a_change_of_the_childs_table_raises_the_parents_version() -> None:
    box = BoxSeat.objects.create()
    BoxSeat.objects.filter(pk=box.pk).update(champagne=True)
    assert version(box) == 2
    sql("UPDATE shop_boxseat SET champagne = champagne")
    assert version(box) == 2


def test_instances_that_write_both_tables_are_counted_once() -> None:
    box = BoxSeat.objects.create()
    box.champagne, box.guest = True, "Ada"
    box.save()
    assert version(box) == box.version == 2
    assert box.update_if_unchanged(champagne=False, guest="Bob")
    assert version(box) == box.version == 3
    BoxSeat.objects.update(champagne=True)
    assert version(box) == 4


# The account


def test_the_account_is_guarded(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(overdraft_limit=5)
    assert version(account) == 2
    assert not account.try_deposit(1)


# The operation


def triggers(table: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", [f'"{table}"']
        )
        return [name for (name,) in cursor.fetchall()]


@pytest.mark.django_db(transaction=True)
def test_it_is_reversible() -> None:
    guards = ["lockstep_version_guard"]
    assert triggers(Purse._meta.db_table) == guards
    try:
        call_command("migrate", "purses", "0001", verbosity=0)
        assert triggers(Purse._meta.db_table) == triggers(PurseEntry._meta.db_table) == []
    finally:
        call_command("migrate", "purses", verbosity=0)
    assert triggers(Purse._meta.db_table) == guards


def test_it_changes_no_state_and_describes_itself() -> None:
    operation = AddVersionGuard("Seat")
    before = ProjectState()
    after = before.clone()
    operation.state_forwards("shop", after)
    assert before.models == after.models
    assert operation.describe() == "Guard the version of Seat"
    assert operation.migration_name_fragment == "seat_version_guard"


def test_it_writes_itself_into_a_migration() -> None:
    from django.db.migrations.writer import MigrationWriter, OperationWriter

    lines, imports = OperationWriter(AddVersionGuard("Seat"), indentation=0).serialize()
    assert "AddVersionGuard" in lines
    assert imports
    migration = type("Migration", (migrations.Migration,), {"operations": [AddVersionGuard("Seat")]})("0002", "shop")
    assert "import django_lockstep.locking.triggers" in MigrationWriter(migration).as_string()


@isolate_apps("tests.testapps.shop")
@pytest.mark.parametrize(
    ("table", "name"),
    [("dol$$lar", "a$$b"), ("it's; --", "co'l {0}"), ("{0} Ünï", "v {1}"), ('apart"."thing', "n"), ("ü" * 31, "N")],
)
def test_any_name_that_a_table_or_column_can_have(table: str, name: str) -> None:
    class Odd(VersionedModel):
        version = VersionField(db_column=f"version {name}", uncounted=["hits"])
        n: Any = models.IntegerField(db_default=0, db_column=name)
        hits: Any = models.IntegerField(db_default=0, db_column=f"hits {name}")

        class Meta:
            app_label = "shop"
            db_table = table

    sql("CREATE SCHEMA apart")
    with connection.schema_editor() as editor:
        editor.create_model(Odd)
        AddVersionGuard("Odd").install(Odd, editor)
        AddEditGuard("Odd").install(Odd, editor)
    if "$" in table:  # which Django's own queries refuse
        sql(f'INSERT INTO "{table}" DEFAULT VALUES')
        sql(f'UPDATE "{table}" SET "{name}" = 1')
        return
    row = Odd.objects.create()
    Odd.objects.update(n=1)
    Odd.objects.update(hits=1)
    assert version(row) == 2
    assert lock_row(Odd, row.pk).n == 1
    with connection.schema_editor() as editor:
        AddVersionGuard("Odd").remove(Odd, editor)
    Odd.objects.update(n=2)
    assert version(row) == 2
