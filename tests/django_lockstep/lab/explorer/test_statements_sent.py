"""What is read from every statement that these tests' explorations send: ``statements_sent.txt``.

Each statement stands there with its answer below it. A change of the reader shows as a change of answers, each of which
has to be certain: a narrower one hides schedules. The n-th parameter has the value 100 + n; numbers in the text are 7.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from django_lockstep.lab.explorer.effects.catalog import Catalog, TableFacts, UniqueIndex
from django_lockstep.lab.explorer.effects.footprints import FootprintKey
from django_lockstep.lab.explorer.effects.sql import parse
from django_lockstep.lab.explorer.effects.statements import Statement

TABLES, STATEMENTS = (Path(__file__).parent / "statements_sent.txt").read_text().rstrip().split("\n\n")
LINES = STATEMENTS.splitlines()


def tables() -> Iterator[TableFacts]:
    """Yield the tables of the list's first lines: a name, the primary key, other unique columns.

    A primary key called id is numbered by a sequence.
    """
    for line in TABLES.splitlines():
        name, pk, *unique = line.split(", ")
        yield TableFacts(
            name=name,
            pk=pk,
            unique=frozenset({pk, *unique}),
            indexes=tuple(UniqueIndex(name=column, columns=(column,)) for column in (pk, *unique)),
            numbered=frozenset({pk} & {"id"}),
        )


def answer(sql: str) -> str:
    """Return what the statement is read as, with a catalog that has not seen another one."""
    statement = parse(sql, [101 + number for number in range(sql.count("%s"))], catalog=Catalog(tables()))
    return "; ".join(words(statement))


def words(statement: Statement) -> Iterator[str]:
    yield statement.kind + (" session changed" if statement.changes_session else "")
    yield from filter(None, [statement.isolation, "read only" if statement.read_only else ""])
    locks = [(f"{mode.name} of ", key) for key, mode in statement.locks]
    for name, found in (("reads", statement.reads), ("writes", statement.writes)):
        yield from [f"{name} {rows(('', key) for key in found)}"] if found else []
    yield from [f"locks {rows(locks)}"] if locks else []
    if statement.keys is not None:
        given = [f"{index.name} {', '.join(map(str, numbers))}" for index, numbers in statement.keys.parts]
        yield f"keys {', '.join(given) or 'of its own'}"


def rows(keys: Iterable[tuple[str, FootprintKey]]) -> str:
    return ", ".join(sorted(f"{lock}{table} {'*' if key is None else key}" for lock, (table, key) in keys))


def test_statements_are_read_as_the_list_says() -> None:
    answers = {sql: (expected, f"    {answer(sql)}") for sql, expected in zip(LINES[::2], LINES[1::2], strict=True)}

    assert {sql: both for sql, both in answers.items() if len(set(both)) > 1} == {}


def test_the_list_has_each_statement_once_and_in_order() -> None:
    assert LINES[::2] == sorted(set(LINES[::2]))
