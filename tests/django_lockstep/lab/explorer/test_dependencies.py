"""The table of dependencies: what the manual prints, and of which no row can be left out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_lockstep.lab.explorer import Exploration, explore
from django_lockstep.lab.explorer.effects import footprints
from django_lockstep.lab.explorer.effects.footprints import (
    ANY,
    DEPENDENCIES,
    LOCAL,
    MODE_CONFLICTS,
    OPAQUE,
    Footprint,
    Mode,
    conflicts_of,
    dependent,
    lock,
    touch,
)
from tests.django_lockstep.lab.explorer.programs import ends
from tests.django_lockstep.lab.explorer.schemas import made, program, race_on, run

MANUAL = Path(__file__).parents[4] / "docs" / "prove" / "why.md"
SCHEMA = (
    "CREATE TABLE made_a (id serial PRIMARY KEY, v int, u int UNIQUE)",
    "CREATE TABLE made_b (id int PRIMARY KEY, a int REFERENCES made_a)",
    "CREATE SEQUENCE made_s",
    "CREATE TABLE made_c (id int PRIMARY KEY DEFAULT nextval('made_s'), v int)",
    "CREATE TABLE made_d (id int PRIMARY KEY DEFAULT nextval('made_s'), v int)",
)
TABLES = ("made_a", "made_b", "made_c", "made_d")
ROWS = ("INSERT INTO made_a VALUES (1, 1, 1), (2, 2, 2)", "SELECT setval('made_a_id_seq', 2)")
Program = tuple[str, ...]


def locks(row: int, strength: str) -> str:
    return f"SELECT id FROM made_a WHERE id = {row} FOR {strength}"


def crossing(first: str, second: str) -> tuple[Program, Program]:
    """Lock two rows in either order: there is a deadlock if the two locks conflict."""
    return (locks(1, first), locks(2, second)), (locks(2, first), locks(1, second))


def at(level: str, *statements: str) -> Program:
    return f"SET TRANSACTION ISOLATION LEVEL {level}", *statements


def reads(row: int) -> str:
    return f"SELECT v FROM made_a WHERE id = {row}"


def adds(amount: int, row: int) -> str:
    return f"UPDATE made_a SET v = v + {amount} WHERE id = {row}"


def tells_when_it_is_refused(fixture: object) -> None:
    with transaction.atomic():
        for sql in at("SERIALIZABLE", reads(2), adds(5, 1)):
            run(sql)
        for at_this_read in (IndexError, KeyError):
            try:
                run(reads(2))
            except DatabaseError:
                raise at_this_read from None


PROGRAMS: dict[str, tuple[Program | Callable[[Any], None], ...]] = {
    "a COMMIT | a read": ((reads(1),), (adds(5, 1),)),
    "a COMMIT | the first statement at REPEATABLE READ or SERIALIZABLE": (
        at("REPEATABLE READ", reads(2), reads(1)),
        (adds(5, 1),),
    ),
    "a lock | a lock": crossing("UPDATE", "UPDATE"),
    "the end of a transaction | a lock": ((f"{locks(1, 'UPDATE')} NOWAIT",), (locks(1, "UPDATE"),)),
    "a lock, or the end of a transaction | a lock refused at once": (
        (f"{locks(1, 'UPDATE')} NOWAIT",),
        (locks(1, "UPDATE"), "SELECT 1"),
    ),
    # The key of a new row is on the index page that a read of another row has locked.
    "a write at SERIALIZABLE | a read at SERIALIZABLE": (
        at("SERIALIZABLE", "INSERT INTO made_b VALUES (1, 1)", "INSERT INTO made_a VALUES (5, 5, 5)"),
        at("SERIALIZABLE", adds(5, 1)),
    ),
    "a COMMIT at SERIALIZABLE | a step of a SERIALIZABLE transaction": (
        at("SERIALIZABLE", reads(1), adds(5, 2)),
        at("SERIALIZABLE", reads(2), adds(5, 1)),
    ),
    # Of two in danger, who is refused depends on when the third one has read, and has ended.
    # A read of what the pivot has written has it refused at its next statement.
    "a step of a SERIALIZABLE transaction that has written, and has read what was committed meanwhile"
    " | a step at SERIALIZABLE": (
        tells_when_it_is_refused,
        at("SERIALIZABLE", adds(5, 2)),
        at("SERIALIZABLE", reads(2), reads(1)),
    ),
    "a statement that depends on everything | a statement": (
        ("LOCK TABLE made_a IN EXCLUSIVE MODE NOWAIT",),
        (adds(5, 1),),
    ),
}
PAIRS: dict[tuple[Mode, Mode], tuple[Program, ...]] = {
    (Mode.KEY_SHARE, Mode.UPDATE): crossing("KEY SHARE", "UPDATE"),
    (Mode.SHARE, Mode.NO_KEY_UPDATE): crossing("SHARE", "NO KEY UPDATE"),
    (Mode.SHARE, Mode.UPDATE): crossing("SHARE", "UPDATE"),
    (Mode.NO_KEY_UPDATE, Mode.NO_KEY_UPDATE): crossing("NO KEY UPDATE", "NO KEY UPDATE"),
    (Mode.NO_KEY_UPDATE, Mode.UPDATE): crossing("NO KEY UPDATE", "UPDATE"),
    (Mode.UPDATE, Mode.UPDATE): crossing("UPDATE", "UPDATE"),
    (Mode.KEY_SHARE, Mode.INSERT): (("INSERT INTO made_a VALUES (5, 5)",), ("INSERT INTO made_b VALUES (1, 5)",)),
    # Two tables that take their numbers from one sequence.
    (Mode.UNIQUE, Mode.UNIQUE): (("INSERT INTO made_c (v) VALUES (1)",), ("INSERT INTO made_d (v) VALUES (1)",)),
    (Mode.ORDER, Mode.ORDER): (
        ("UPDATE made_a SET v = 9 WHERE id = 1", "SELECT id FROM made_a WHERE v = 9 LIMIT 1"),
        ("UPDATE made_a SET v = 9 WHERE id = 2",),
    ),
}
# An INSERT takes both of these locks of its keys, and reads them as well: programs that need the others are not known.
SPARE_PAIRS = {(Mode.UPDATE, Mode.INSERT), (Mode.UPDATE, Mode.UNIQUE), (Mode.INSERT, Mode.UNIQUE)}


def searched(programs: tuple[Program | Callable[[Any], None], ...]) -> tuple[Any, bool]:
    """Return the ends of a search, and whether there was a deadlock in it."""
    footprints.dependent.cache_clear()
    actors = (program(*statements) if isinstance(statements, tuple) else statements for statements in programs)
    scenario = race_on(TABLES, ROWS, *actors)
    result: Exploration = explore(scenario, raises=(DatabaseError, LookupError), audit=0)
    return ends(result), bool(result.deadlocks)


def test_the_manual_prints_the_table() -> None:
    printed = [f"| {row.words} |" for row in DEPENDENCIES]

    assert "\n".join(printed) in MANUAL.read_text()


def test_each_row_is_tried() -> None:
    assert {row.words.rpartition(" | ")[0] for row in DEPENDENCIES} == PROGRAMS.keys()
    assert {*PAIRS, *SPARE_PAIRS} == MODE_CONFLICTS


def taken(key: int | None, mode: Mode) -> Footprint:
    return lock("lock", {(("seat", key), mode)})


SEEN, SNAPSHOT = touch("read", {("seat", 1)}), touch("take snapshot", {ANY})
WRITE = taken(1, Mode.NO_KEY_UPDATE)
UNLOCK = lock("release", {(("seat", 1), Mode.NO_KEY_UPDATE)})
COMMIT = touch("publish", {("seat", 1)}) | UNLOCK
REFUSED = SEEN | lock("try", {(("seat", 1), Mode.NO_KEY_UPDATE)})


@pytest.mark.parametrize(
    ("first", "second", "depends"),
    [
        (SEEN, WRITE, False),
        (SEEN, COMMIT, True),
        (WRITE, COMMIT, True),
        (WRITE, WRITE, True),
        (WRITE, taken(2, Mode.NO_KEY_UPDATE), False),
        (WRITE, taken(None, Mode.UPDATE), True),
        (WRITE, taken(1, Mode.KEY_SHARE), False),
        (taken(1, Mode.UPDATE), taken(1, Mode.KEY_SHARE), True),
        (taken(1, Mode.SHARE), taken(1, Mode.SHARE), False),
        (SEEN, SEEN, False),
        (REFUSED, REFUSED, False),
        (REFUSED, WRITE, True),
        (REFUSED, COMMIT, True),
        (REFUSED, UNLOCK, True),
        (REFUSED, taken(2, Mode.UPDATE), False),
        (SNAPSHOT, COMMIT, True),
        (SNAPSHOT, WRITE, False),
        (OPAQUE, SEEN, True),
        (OPAQUE, LOCAL, False),
    ],
)
def test_what_depends_on_what(first: Footprint, second: Footprint, depends: bool) -> None:
    assert dependent(first, second) is dependent(second, first) is depends


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("left_out", PROGRAMS)
def test_without_a_row_of_the_table_the_search_misses_an_end(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(*SCHEMA):
        whole = searched(PROGRAMS[left_out])
        rows = [row for row in DEPENDENCIES if not row.words.startswith(f"{left_out} | ")]
        monkeypatch.setattr(footprints, "CONFLICTS", conflicts_of(rows))
        assert searched(PROGRAMS[left_out]) != whole


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("left_out", PAIRS)
def test_nor_without_a_conflict_of_two_locks(left_out: tuple[Mode, Mode], monkeypatch: pytest.MonkeyPatch) -> None:
    with made(*SCHEMA):
        whole = searched(PAIRS[left_out])
        monkeypatch.setattr(footprints, "MODE_CONFLICTS", MODE_CONFLICTS - {left_out})
        assert searched(PAIRS[left_out]) != whole


@pytest.fixture(autouse=True)
def _forget_what_was_answered() -> Iterator[None]:
    yield
    footprints.dependent.cache_clear()
