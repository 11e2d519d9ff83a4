"""The guard raises the version for writers that never saw an instance, once and only for a change."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, migrations, models, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState
from django.test.utils import isolate_apps

from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard, VersionedModel, VersionField, lock_row
from django_lockstep.locking.checks import check_tables
from django_lockstep.locking.triggers import RowTrigger, outdated_triggers
from tests.django_lockstep.locking.looks import every_kind
from tests.support.sessions import query
from tests.testapps.purses.models import Purse, PurseEntry
from tests.testapps.shop.models import BoxSeat, Seat

pytestmark = pytest.mark.django_db


def version(row: Any) -> int:
    return int(type(row).objects.get(pk=row.pk).version)


@every_kind
def test_an_update_of_the_query_set_raises_it_once(make: Any) -> None:
    row, bystander = make(), Seat.objects.create()
    type(row).objects.filter(pk=row.pk).update(guest="Ada")
    assert (version(row), version(bystander)) == (2, 1)
    type(row).objects.filter(pk=row.pk).update(guest="Ada")
    assert version(row) == 2


def test_a_bulk_update_raises_it(seat: Seat) -> None:
    seat.guest = "Ada"
    Seat.objects.bulk_update([seat], ["guest"])
    assert version(seat) == 2


def test_a_writer_that_sets_the_version_is_not_counted_twice(seat: Seat) -> None:
    query("UPDATE shop_seat SET guest = 'Ada', version = version + 1 WHERE id = %s", seat.pk)
    assert version(seat) == 2
    assert Seat.objects.get().update_if_unchanged(guest="Bob")
    assert version(seat) == 3


@pytest.mark.parametrize("lower", [1, 4])
def test_a_version_never_falls(seat: Seat, lower: int) -> None:
    query("UPDATE shop_seat SET version = 5 WHERE id = %s", seat.pk)
    query("UPDATE shop_seat SET version = %s, guest = 'Ada' WHERE id = %s", lower, seat.pk)
    assert version(seat) == 6


def test_an_update_that_changes_nothing_changes_nothing() -> None:
    seat = Seat.objects.create(guest="Ada", wishes=["aisle"])
    query("UPDATE shop_seat SET guest = guest, price = 10.00, wishes = '[\"aisle\"]'")
    assert version(seat) == 1


def test_an_upsert_raises_it(seat: Seat) -> None:
    Seat.objects.bulk_create(
        [Seat(pk=seat.pk, guest="Ada")], update_conflicts=True, unique_fields=["id"], update_fields=["guest"]
    )
    assert version(seat) == 2


# A row in two tables


def test_a_change_of_the_childs_table_raises_the_parents_version() -> None:
    box = BoxSeat.objects.create()
    BoxSeat.objects.filter(pk=box.pk).update(champagne=True)
    assert version(box) == 2
    query("UPDATE shop_boxseat SET champagne = champagne")
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


# The operation


def triggers(table: str) -> list[str]:
    names = "SELECT array_agg(tgname) FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal"
    return query(names, f'"{table}"') or []


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

    query("CREATE SCHEMA apart")
    with connection.schema_editor() as editor:
        editor.create_model(Odd)
        AddVersionGuard("Odd").install(Odd, editor)
        AddEditGuard("Odd").install(Odd, editor)
    if "$" in table:  # which Django's own queries refuse
        query(f'INSERT INTO "{table}" DEFAULT VALUES')
        query(f'UPDATE "{table}" SET "{name}" = 1')
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


# A guard goes on when a migration renames what its function names, forwards and backwards


STEPS = {
    "0001_models": """
        migrations.CreateModel("Thing", [
            ("id", models.BigAutoField(primary_key=True)),
            ("n", models.IntegerField(db_default=0)),
            ("hits", models.IntegerField(db_default=0)),
            ("version", VersionField(uncounted=["hits"])),
        ]),
        migrations.CreateModel("Base", [
            ("id", models.BigAutoField(primary_key=True)),
            ("version", VersionField()),
        ]),
        migrations.CreateModel("Child", [
            ("base_ptr", models.OneToOneField("wares.Base", models.CASCADE, parent_link=True, primary_key=True)),
            ("m", models.IntegerField(db_default=0)),
        ], bases=("wares.base",)),
        *map(AddVersionGuard, ("Thing", "Base", "Child")),
        AddEditGuard("Thing"),
    """,
    "0002_rename_fields": """
        migrations.RenameField("Thing", "version", "revision"),
        migrations.RenameField("Thing", "hits", "views"),
        migrations.AlterField("Thing", "revision", VersionField(uncounted=["views"])),
        migrations.RenameField("Base", "version", "revision"),
    """,
    "0003_rename_key": 'migrations.RenameField("Thing", "id", "number")',
    "0004_rename_tables": """
        migrations.AlterModelTable("Thing", "wares goods"),
        migrations.AlterModelTable("Base", "wares_root"),
        migrations.RenameModel("Child", "Offspring"),
    """,
    "0005_rename_model": 'migrations.RenameModel("Thing", "Article")',
    "0006_by_sql": """
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(
                "ALTER TABLE wares_root RENAME TO wares_base2", "ALTER TABLE wares_base2 RENAME TO wares_root")],
            [migrations.AlterModelTable("Base", "wares_base2")],
        ),
    """,
    "0007_columns": """
        migrations.AddField("Offspring", "twice", models.GeneratedField(
            expression=models.F("m") * 2, output_field=models.IntegerField(), db_persist=True)),
        migrations.AddField("Article", "twice", models.GeneratedField(
            expression=models.F("n") * 2, output_field=models.IntegerField(), db_persist=True)),
        migrations.RemoveField("Article", "views"),
        migrations.AlterField("Article", "revision", VersionField()),
    """,
    "0008_no_version": 'migrations.RemoveField("Base", "revision")',
}
# How the tables and columns are named after each step: things, their version, their uncounted column, parent, children.
NAMES = {
    "0001_models": ("wares_thing", "version", "hits", "wares_base", "wares_child"),
    "0002_rename_fields": ("wares_thing", "revision", "views", "wares_base", "wares_child"),
    "0003_rename_key": ("wares_thing", "revision", "views", "wares_base", "wares_child"),
    "0004_rename_tables": ('"wares goods"', "revision", "views", "wares_root", "wares_offspring"),
    "0005_rename_model": ('"wares goods"', "revision", "views", "wares_root", "wares_offspring"),
    "0006_by_sql": ('"wares goods"', "revision", "views", "wares_base2", "wares_offspring"),
    "0007_columns": ('"wares goods"', "revision", None, "wares_base2", "wares_offspring"),
}
HEAD = """
from django.db import migrations, models
from django_lockstep.editing import AddEditGuard
from django_lockstep.locking import AddVersionGuard, VersionField

class Migration(migrations.Migration):
    dependencies = [{dependency}]
    operations = [{operations}]
"""


@pytest.fixture
def wares(transactional_db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An app whose migrations rename what guards name."""
    folder = tmp_path / "wares" / "migrations"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    before = ('"lockstep_editing", "0001_initial"',)
    for name, operations in STEPS.items():
        text = HEAD.format(dependency=f"({before[0]})", operations=textwrap.dedent(operations))
        (folder / f"{name}.py").write_text(text)
        before = (f'"wares", "{name}"',)
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "wares"]
    yield
    call_command("migrate", "wares", "zero", verbosity=0)
    for name in ware_functions():  # DROP COLUMN and DROP TABLE take the trigger along, and leave its function
        query(f'DROP FUNCTION "{name}"')
    for name in [name for name in sys.modules if name.partition(".")[0] == "wares"]:
        del sys.modules[name]


def check_guards(step: str) -> None:
    """Write by SQL, and see that each guard counts what it should."""
    things, version, uncounted, parent, children = NAMES[step]
    for table in (things, children, parent):
        query(f"DELETE FROM {table}")
    query(f"INSERT INTO {things} (n) VALUES (1)")
    query(f"UPDATE {things} SET n = 2")
    query(f"UPDATE {things} SET n = n")
    if uncounted:
        query(f"UPDATE {things} SET {uncounted} = 7")
    assert query(f"SELECT {version} FROM {things}") == 2
    query(f"INSERT INTO {parent} (id) VALUES (1)")
    query(f"INSERT INTO {children} (base_ptr_id, m) VALUES (1, 1)")
    query(f"UPDATE {children} SET m = 2")
    query(f"UPDATE {children} SET m = m")
    assert query(f"SELECT {version} FROM {parent}") == 2


def ware_triggers() -> list[str]:
    names = "SELECT array_agg(tgname ORDER BY tgname) FROM pg_trigger WHERE NOT tgisinternal AND "
    return list(query(names + "tgrelid::regclass::text LIKE '%wares%'"))


def ware_functions() -> list[str]:
    return query("SELECT array_agg(proname) FROM pg_proc WHERE proname LIKE 'wares%'") or []


@pytest.mark.slow
def test_each_step_there_and_back(wares: None) -> None:
    for step in [*NAMES, *reversed(NAMES)]:
        call_command("migrate", "wares", step, verbosity=0)
        check_guards(step)
        assert ware_triggers() == ["lockstep_edit_guard", *["lockstep_version_guard"] * 3]
        assert len(ware_functions()) == 4, "a renamed table leaves no function behind"


def test_the_edit_guard_follows_a_renamed_key_and_model(wares: None) -> None:
    call_command("migrate", "wares", "0005", verbosity=0)
    query('INSERT INTO "wares goods" (n) VALUES (1)')
    source = query("SELECT prosrc FROM pg_proc WHERE proname LIKE 'wares goods%edit_guard'")
    assert "wares.article" in source
    assert 'NEW."number"' in source
    assert "wares.thing" not in source


def test_without_a_version_there_is_no_guard(wares: None) -> None:
    call_command("migrate", "wares", verbosity=0)
    query("INSERT INTO wares_base2 (id) VALUES (1)")
    query("INSERT INTO wares_offspring (base_ptr_id, m) VALUES (1, 1)")
    query("UPDATE wares_offspring SET m = 2")
    assert ware_triggers() == ["lockstep_edit_guard", "lockstep_version_guard"], "those of the article"


def test_two_tables_that_exchange_their_names(wares: None) -> None:
    call_command("migrate", "wares", "0001", verbosity=0)
    state = MigrationExecutor(connection).loader.project_state(("wares", "0001_models"))
    thing, other = state.apps.get_model("wares", "Thing"), state.apps.get_model("wares", "Base")
    with transaction.atomic(), connection.schema_editor() as editor:
        editor.execute("ALTER TABLE wares_thing RENAME TO swapped")
        editor.execute("ALTER TABLE wares_base RENAME TO wares_thing")
        editor.execute("ALTER TABLE swapped RENAME TO wares_base")
        thing._meta.db_table, other._meta.db_table = "wares_base", "wares_thing"
        # Each has the function whose name belongs to the other.
        outdated = list(outdated_triggers(state.apps, connection))
        assert {model for operation, model, _ in outdated if isinstance(operation, AddVersionGuard)} >= {thing, other}
        for operation, model, _ in outdated:
            operation.install(model, editor)
        assert not list(outdated_triggers(state.apps, connection))
        transaction.set_rollback(True)


def test_a_check_tells_of_a_guard_that_does_not_fit() -> None:
    def warnings() -> list[Any]:
        return [message for message in check_tables(None, ["default"]) if message.id == "lockstep.W006"]

    assert warnings() == []
    query(
        "CREATE OR REPLACE FUNCTION shop_seat_lockstep_version_guard() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.old_name := 1; RETURN NEW; END'"
    )
    (message,) = warnings()
    assert "lockstep_version_guard on the table 'shop_seat' of database 'default'" in message.msg
    assert message.hint == 'Apply the migrations. If this stays, add one more with AddVersionGuard("Seat").'
    with connection.schema_editor() as editor:
        AddVersionGuard("Seat").install(Seat, editor)
    assert warnings() == []


def test_other_databases_have_none() -> None:
    assert {kind.trigger for kind in RowTrigger.__subclasses__()} == {
        "accounts_append_only",
        "lockstep_edit_guard",
        "lockstep_version_guard",
    }
    for alias in connections:
        if connections[alias].vendor != "postgresql":
            assert not list(outdated_triggers(None, connections[alias]))
