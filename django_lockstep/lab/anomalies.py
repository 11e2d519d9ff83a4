"""The anomalies, each as a small race on two rows, x = 10 and y = 20.

Names and definitions: A. Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for Distributed
Transactions", PhD thesis, MIT, 1999 (G0 to G2); P. Bailis et al., "Highly Available Transactions: Virtues and
Limitations", VLDB 2014 (OTV, PMP); H. Berenson et al., "A Critique of ANSI SQL Isolation Levels", SIGMOD 1995 (P4).

Only what committed transactions saw and wrote counts. The last digit of a value is its writer: 0 none, 1 A, 2 B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from django.apps.registry import Apps
from django.db import connection, models, transaction
from psycopg import IsolationLevel

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

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


Program = Callable[[], Any]
"""One transaction's statements; returns what it saw."""


class RolledBack(Exception):
    """Rolls back a transaction on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly: the transactions, and when a run shows it."""

    name: str
    """The short name in the literature."""
    title: str
    """The name in words."""
    text: str
    """What happens, in a sentence."""
    programs: tuple[Program, ...]
    """The transactions of the actors A, B and so on."""
    shown_by: Callable[[Mapping[str, Any], Mapping[int, int]], bool]
    """Takes what each committed transaction saw, by its actor's name, and the values at the end, by primary key."""


def read(*pks: int) -> tuple[int, ...]:
    return tuple(Item.objects.get(pk=pk).value for pk in pks)


def write(pk: int, value: int) -> None:
    Item.objects.filter(pk=pk).update(value=value)


def search() -> tuple[int, ...]:
    """Read by a condition, not by keys."""
    return tuple(Item.objects.filter(value__gte=30).order_by("pk").values_list("value", flat=True))


def write_both(writer: int) -> None:
    write(X, 10 + writer)
    write(Y, 20 + writer)


def write_and_roll_back() -> None:
    write(X, 11)
    # By an exception, because that is how a block of transaction.atomic() is rolled back.
    raise RolledBack


def write_twice() -> None:
    """Write x twice; no other transaction must see the first value."""
    write(X, 91)
    write(X, 11)


def write_then_read(pk: int, value: int, *, other: int) -> int:
    write(pk, value)
    return read(other)[0]


def add(amount: int) -> None:
    write(X, read(X)[0] + amount)


def withdraw(pk: int) -> None:
    """Take 30 from one row if x + y has so much."""
    x, y = read(X, Y)
    if x + y >= 30:
        write(pk, (x if pk == X else y) - 30)


def insert_if_none(pk: int) -> None:
    if not search():
        Item.objects.create(pk=pk, value=30 + pk)


def _writer(value: int) -> int:
    return value % 10


def _observed_transaction_vanishes(seen: Mapping[str, Any], end: Mapping[int, int]) -> bool:
    """Whether C saw x from a later transaction than y, which it read afterwards."""
    last = _writer(end[X])
    # By the order of the writers: 0 is the initial value, 1 that of the one who was overwritten, 2 that of the last.
    x, y = (0 if not _writer(value) else 1 + (_writer(value) == last) for value in seen.get("C", (0, 0)))
    return y < x


_ANOMALIES = (
    Anomaly(
        name="G0",
        title=_("dirty write"),
        text=_("Two transactions write x and y; x ends with one's value, y with the other's."),
        programs=(lambda: write_both(1), lambda: write_both(2)),
        shown_by=lambda seen, end: _writer(end[X]) != _writer(end[Y]),
    ),
    Anomaly(
        name="G1a",
        title=_("aborted read"),
        text=_("B reads what A wrote and rolled back."),
        programs=(write_and_roll_back, lambda: read(X, X)),
        shown_by=lambda seen, end: 11 in seen.get("B", ()),
    ),
    Anomaly(
        name="G1b",
        title=_("intermediate read"),
        text=_("B reads a value that A overwrote before its commit."),
        programs=(write_twice, lambda: read(X, X)),
        shown_by=lambda seen, end: 91 in seen.get("B", ()),
    ),
    Anomaly(
        name="G1c",
        title=_("circular information flow"),
        text=_("A reads what B wrote, and B reads what A wrote."),
        programs=(lambda: write_then_read(X, 11, other=Y), lambda: write_then_read(Y, 22, other=X)),
        # Both must have seen the other's write: then neither can have come first.
        shown_by=lambda seen, end: (seen.get("A"), seen.get("B")) == (22, 11),
    ),
    Anomaly(
        name="OTV",
        title=_("observed transaction vanishes"),
        text=_("C reads a transaction's x, and then y from before that transaction."),
        programs=(lambda: write_both(1), lambda: write_both(2), lambda: read(X, Y)),
        shown_by=_observed_transaction_vanishes,
    ),
    Anomaly(
        name="PMP",
        title=_("predicate-many-preceders (phantom)"),
        text=_("A searches twice; the second time it finds a row that B inserted in between."),
        programs=(lambda: (search(), search()), lambda: Item.objects.create(pk=3, value=32) and None),
        shown_by=lambda seen, end: len(set(seen.get("A", ()))) > 1,
    ),
    Anomaly(
        name="P4",
        title=_("lost update"),
        text=_("A adds 1 to x, B adds 2; one of the additions is gone."),
        programs=(lambda: add(1), lambda: add(2)),
        # One that was refused has lost nothing.
        shown_by=lambda seen, end: end[X] != 10 + ("A" in seen) + 2 * ("B" in seen),
    ),
    Anomaly(
        name="G-single",
        title=_("read skew"),
        text=_("B changes x and y together; A reads the old x and the new y."),
        programs=(lambda: read(X, Y), lambda: write_both(2)),
        shown_by=lambda seen, end: len(set(map(_writer, seen.get("A", ())))) > 1,
    ),
    Anomaly(
        name="G2-item",
        title=_("write skew"),
        text=_("A takes 30 from x, B from y, each because x + y has 30; then it has -30."),
        programs=(lambda: withdraw(X), lambda: withdraw(Y)),
        shown_by=lambda seen, end: end[X] + end[Y] < 0,
    ),
    Anomaly(
        name="G2",
        title=_("anti-dependency cycle (write skew on a search)"),
        text=_("A and B each insert a row because a search found none; then there are two."),
        programs=(lambda: insert_if_none(3), lambda: insert_if_none(4)),
        shown_by=lambda seen, end: end.keys() >= {3, 4},
    ),
)

ANOMALIES: Mapping[str, Anomaly] = MappingProxyType({anomaly.name: anomaly for anomaly in _ANOMALIES})
"""Every anomaly by its name, in the order of the published tables."""


# A race for each anomaly at each isolation level, which must come out as published.

LEVELS = ("read committed", "repeatable read", "serializable")
"""PostgreSQL's isolation levels, weakest first; it accepts READ UNCOMMITTED and gives READ COMMITTED."""

SOURCES = (
    "Martin Kleppmann, Hermitage, https://github.com/ept/hermitage",
    "PostgreSQL documentation, 13.2, https://www.postgresql.org/docs/current/transaction-iso.html",
)
"""Where the results are published."""

POSSIBLE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "read committed": frozenset({"PMP", "P4", "G-single", "G2-item", "G2"}),
        "repeatable read": frozenset({"G2-item", "G2"}),
        "serializable": frozenset(),
    }
)
"""The anomalies that PostgreSQL allows by these sources; it prevents all others."""

REFUSALS = frozenset({"40001", "40P01"})
"""SQLSTATEs with which the server prevents an anomaly."""


def race_name(anomaly: str, level: str) -> str:
    """Return the name of the race, such as ``anomaly:G2-item:repeatable-read``."""
    return f"anomaly:{anomaly}:{level.replace(' ', '-')}"


def _race(anomaly: Anomaly, level: str) -> Race:
    def not_shown(_: None, results: Mapping[str, Any], errors: Mapping[str, BaseException]) -> None:
        # A transaction that failed for another reason was never exposed to the anomaly.
        others = {name: error for name, error in errors.items() if sqlstate_of(error) not in REFUSALS}
        if others:
            raise AssertionError(f"transactions failed with {others}")
        if anomaly.shown_by(results, items_at_the_end()):
            raise AssertionError(joined([joined([anomaly.name, anomaly.title], ", "), anomaly.text], ": "))

    return Race(
        name=race_name(anomaly.name, level),
        text=joined([anomaly.title, anomaly.text], ": "),
        scenario=Scenario(
            set_up=make_items,
            actors=[_transaction(program, level=level) for program in anomaly.programs],
            invariant=not_shown,
            observe=lambda _: items_at_the_end(),
            prepare=make_table,
        ),
        holds=anomaly.name not in POSSIBLE[level],
    )


def _transaction(program: Program, *, level: str) -> Callable[[None], Any]:
    def act(_: None) -> Any:
        connection.ensure_connection()
        # As OPTIONS["isolation_level"] does it: as part of BEGIN, not as one more statement to interleave.
        connection.connection.isolation_level = IsolationLevel[level.replace(" ", "_").upper()]
        try:
            with transaction.atomic():
                return program()
        except RolledBack:
            return None

    return act


RACES: Mapping[str, Race] = MappingProxyType(
    {race.name: race for anomaly in ANOMALIES.values() for level in LEVELS for race in [_race(anomaly, level)]}
)
"""By name, in the order of the published tables."""
