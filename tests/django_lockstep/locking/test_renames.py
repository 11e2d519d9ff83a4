"""A guard goes on when a migration renames what its function names, forwards and backwards."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from django_lockstep.locking.checks import check_tables
from django_lockstep.locking.triggers import AddVersionGuard, RowTrigger, outdated_triggers
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

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
def wares(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
    for name in functions():  # DROP COLUMN and DROP TABLE take the trigger along, and leave its function
        sql(f'DROP FUNCTION "{name}"')
    for name in [name for name in sys.modules if name.partition(".")[0] == "wares"]:
        del sys.modules[name]


def sql(text: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return cursor.fetchone()[0] if cursor.description else cursor.rowcount


def check_guards(step: str) -> None:
    """Write by SQL, and see that each guard counts what it should."""
    things, version, uncounted, parent, children = NAMES[step]
    for table in (things, children, parent):
        sql(f"DELETE FROM {table}")
    sql(f"INSERT INTO {things} (n) VALUES (1)")
    sql(f"UPDATE {things} SET n = 2")
    sql(f"UPDATE {things} SET n = n")
    if uncounted:
        sql(f"UPDATE {things} SET {uncounted} = 7")
    assert sql(f"SELECT {version} FROM {things}") == 2
    sql(f"INSERT INTO {parent} (id) VALUES (1)")
    sql(f"INSERT INTO {children} (base_ptr_id, m) VALUES (1, 1)")
    sql(f"UPDATE {children} SET m = 2")
    sql(f"UPDATE {children} SET m = m")
    assert sql(f"SELECT {version} FROM {parent}") == 2


def triggers() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE ANY ('{%wares%}')"
        )
        return sorted(name for (name,) in cursor.fetchall())


def functions() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT proname FROM pg_proc WHERE proname LIKE 'wares%'")
        return sorted(name for (name,) in cursor.fetchall())


@pytest.mark.slow
def test_each_step_there_and_back(wares: None) -> None:
    for step in [*NAMES, *reversed(NAMES)]:
        call_command("migrate", "wares", step, verbosity=0)
        check_guards(step)
        assert triggers() == ["lockstep_edit_guard", *["lockstep_version_guard"] * 3]
        assert len(functions()) == 4, "a renamed table leaves no function behind"


def test_the_edit_guard_follows_a_renamed_key_and_model(wares: None) -> None:
    call_command("migrate", "wares", "0005", verbosity=0)
    sql('INSERT INTO "wares goods" (n) VALUES (1)')
    source = sql("SELECT prosrc FROM pg_proc WHERE proname LIKE 'wares goods%edit_guard'")
    assert "wares.article" in source
    assert 'NEW."number"' in source
    assert "wares.thing" not in source


def test_without_a_version_there_is_no_guard(wares: None) -> None:
    call_command("migrate", "wares", verbosity=0)
    sql("INSERT INTO wares_base2 (id) VALUES (1)")
    sql("INSERT INTO wares_offspring (base_ptr_id, m) VALUES (1, 1)")
    sql("UPDATE wares_offspring SET m = 2")
    assert triggers() == ["lockstep_edit_guard", "lockstep_version_guard"], "those of the article"


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


@pytest.mark.django_db
def test_a_check_tells_of_a_guard_that_does_not_fit() -> None:
    def warnings() -> list[Any]:
        return [message for message in check_tables(None, ["default"]) if message.id == "lockstep.W006"]

    assert warnings() == []
    sql(
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
