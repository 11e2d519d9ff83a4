"""Rows of a table that gets its version later, and rows of other programs, begin at 1: 0 means "never seen"."""

from typing import Any

from django.db import connection, models
from django.db.migrations.state import ModelState


def test_a_table_that_gets_its_version_later(model: Any) -> None:
    version = model._meta.get_field("version").clone()
    table = ModelState("shop", "OldSeat", [("id", models.BigAutoField(primary_key=True)), ("version", version)])
    from django.db.migrations.state import StateApps

    old = table.clone().render(StateApps([], {}))
    with connection.schema_editor() as editor, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop_oldseat (id bigserial PRIMARY KEY)")
        cursor.execute("INSERT INTO shop_oldseat DEFAULT VALUES")
        editor.add_field(old, old._meta.get_field("version"))
        cursor.execute("SELECT version FROM shop_oldseat")
        assert cursor.fetchall() == [(1,)]


def test_a_row_of_another_program(model: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {model._meta.db_table} (row, guest, price, wishes) VALUES ('', '', 0, '[]')")
    assert model.objects.get().version == 1
