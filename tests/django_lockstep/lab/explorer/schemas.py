"""Tables that a test makes for itself, with actors in SQL."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from django_lockstep.lab.explorer import Scenario

SCHEMA = "made"


@contextmanager
def made(*statements: str) -> Iterator[None]:
    """Make tables and functions whose names begin with the schema's, and drop them in the end."""
    try:
        for sql in statements:
            run(sql)
        yield
    finally:
        run(_DROP)


_DROP = f"""
DO $$ DECLARE what text; BEGIN
    LOOP
        SELECT format('%s %s', kind, name) INTO what FROM (
            SELECT 'TABLE', oid::regclass::text, relname FROM pg_class WHERE relkind = 'r'
            UNION ALL SELECT 'SEQUENCE', oid::regclass::text, relname FROM pg_class WHERE relkind = 'S'
            UNION ALL SELECT 'DOMAIN', oid::regtype::text, typname FROM pg_type WHERE typtype = 'd'
            UNION ALL SELECT 'ROUTINE', oid::regprocedure::text, proname FROM pg_proc
        ) AS all_of_them (kind, name, plain) WHERE plain LIKE '{SCHEMA}\\_%' LIMIT 1;
        EXIT WHEN NOT FOUND;
        EXECUTE format('DROP %s CASCADE', what);
    END LOOP;
END $$
"""


def run(sql: str, params: Any = None) -> list[Any]:
    """Run one statement and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def trigger(body: str, when: str = "BEFORE INSERT OR UPDATE") -> tuple[str, str]:
    """Return what makes a trigger on the first table, with its function."""
    return (
        f"CREATE FUNCTION made_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"CREATE TRIGGER made_t {when} ON made_a FOR EACH ROW EXECUTE FUNCTION made_trigger()",
    )


def program(*statements: str) -> Callable[[Any], int]:
    """Return an actor that sends these in one transaction, and returns the sum of the numbers read."""

    def act(fixture: Any) -> int:
        with transaction.atomic():
            return sum(value or 0 for sql in statements for row in run(sql) for value in row)

    return act


def contents(*tables: str) -> Callable[[Any], Any]:
    """Return what shows the rows of the tables."""
    return lambda fixture: [sorted(map(str, run(f"SELECT * FROM {table}"))) for table in tables]


def race_on(
    tables: Sequence[str],
    set_up: Sequence[str],
    *actors: Callable[[Any], Any],
    shown: Callable[[Any], Any] | None = None,
) -> Scenario:
    """Race the actors over rows that the set-up's statements insert; every end is right."""

    def prepare() -> bool:
        for sql in set_up:
            run(sql)
        return True

    return Scenario(set_up=prepare, actors=list(actors), invariant=bool, observe=contents(*tables))
