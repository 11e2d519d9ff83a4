"""The table of the anomalies: two rows, x = 10 and y = 20, outside of the project's models."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import connection, models

__all__ = ["Item", "X", "Y", "items_at_the_end", "make_items", "make_table"]

X, Y = 1, 2
"""Primary keys of the two initial rows."""


class Item(models.Model):
    """A row with a value."""

    id = models.IntegerField(primary_key=True)
    value = models.IntegerField()

    objects: models.Manager[Item] = models.Manager()

    class Meta:
        """A registry of its own, so that neither makemigrations nor database routers see the model."""

        apps = Apps()
        app_label = "lockstep_lab"
        db_table = "lockstep_lab_anomalies"


def make_table() -> None:
    """Create the table if it is missing: a scratch database has the project's tables only."""
    table = Item._meta.db_table
    if table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Item)
        with connection.cursor() as cursor:
            # Autovacuum would change plans, and with them what SERIALIZABLE locks, while schedules run.
            cursor.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")


def make_items() -> None:
    # One by one: the explorer does not know which tables a bulk_create() writes, and would copy all of them.
    Item.objects.create(pk=X, value=10)
    Item.objects.create(pk=Y, value=20)


def items_at_the_end() -> dict[int, int]:
    """Return the committed values, by primary key."""
    return dict(Item.objects.order_by("pk").values_list("pk", "value"))
