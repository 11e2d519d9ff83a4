"""What was recorded of a test suite: units of work with their statements, and the tables that these touch; its file."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from django_lockstep.lab.explorer.effects.catalog import ForeignKey, UniqueIndex
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.wording import as_data, from_data

PASSED_ROW = "PASSED ROW"
"""Stands where SQL would, for a row that a call is passed as a model's instance: its caller has read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The innermost line of the project's code that sent a statement."""

    path: str
    """Relative to the project's root; for an installed app, to the folder that it is installed in."""
    line: int
    function: str
    """Its qualified name in its module."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """A row that a statement returned, as far as its columns came from a table."""

    table: str
    key: str = ""
    """The fingerprint of its primary key; of several columns joined by commas; empty where it was not returned."""
    values: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Fingerprints of its values, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStatement:
    """One statement that succeeded."""

    sql: str
    """With a placeholder ``%s`` for each parameter."""
    params: tuple[str, ...] = ()
    """The fingerprint of each parameter, of several sets those of the first; of a list those of its elements, in
    brackets."""
    types: tuple[str, ...] = ()
    """The Python type of each parameter; ``now`` for a time that was the current one, ``NoneType`` for NULL."""
    transaction: int | None = None
    """Which transaction of the unit it would be in without the test's own one; None with autocommit."""
    isolation: str = "read committed"
    rows: int | None = None
    """How many it returned or changed."""
    read: tuple[RowRead, ...] = ()
    """Rows that it returned; only the first ones of many."""
    alias: str = "default"
    site: Site | None = None
    """None where no line of the project's code is between the handler and the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of work that a test had done: what production does as often as it likes, at the same time."""

    test: str
    """The test's id."""
    kind: str
    """``request``, ``asynchronous request`` or ``call``."""
    name: str
    """``POST orders/<int:pk>/pay/`` or ``shop.services.withdraw``."""
    number: int
    """Of a request: how many others, of whatever name, came before it in this test. Of a call: how many of this
    function, outside of requests, that sent a statement. Both count what the test does after its fixtures."""
    inputs: frozenset[str] = frozenset()
    """Fingerprints of the values in the query, the body and the path of a request; of a call's plain arguments."""
    statements: tuple[RecordedStatement, ...] = ()
    key_order: tuple[str, ...] = ()
    """Fingerprints of the primary keys that it read, in the order of the keys."""
    only_read: str = ""
    """The digest of a unit that wrote and locked nothing; its statements are left out."""

    @property
    def digest(self) -> str:
        """A digest of its statements, and of whether each met no, one or several rows, by which code decides."""
        met = [(statement.sql, min(statement.rows or 0, 2)) for statement in self.statements]
        return self.only_read or hashlib.blake2b(repr(met).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that the recorded statements may touch."""

    name: str
    model: str = ""
    """The model's label; empty if it is of none."""
    key: tuple[str, ...] = ()
    """Columns of the primary key."""
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The server's type of each column."""
    unique: tuple[UniqueIndex, ...] = ()
    """The primary key's index is one of them."""
    foreign_keys: tuple[ForeignKey, ...] = ()
    """Its references of one column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All units of a run, those of each test in the order in which they ended."""

    tables: Mapping[str, Table] = field(default_factory=dict, hash=False)
    units: tuple[Unit, ...] = ()
    tests: int = 0
    """How many tests were recorded."""
    notes: tuple[str, ...] = ()
    """Sentences on what could not be recorded."""

    @property
    def writers(self) -> tuple[Unit, ...]:
        """The units that wrote or locked something."""
        return tuple(unit for unit in self.units if unit.statements)


_VERSION = 3
_MOST_NUMBERED = 20_000
"""Templates, sites or rows that are written once; what a test has made is gone after it, so that few come again."""


class RecordingWriter:
    """Writes a recording, one JSON object a line, appended while the tests run; threads may share it.

    A killed run leaves a file that can be read, less its last line. Templates, sites and rows are written once, before
    the unit that is the first to use them, and are numbered in their order: a suite has few, and each of them very
    often.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._numbers: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._counts = Counter[str]()
        self._file = path.open("w", encoding="utf-8")
        self._write({"recording": _VERSION})

    def write_unit(self, unit: Unit) -> None:
        """Append a unit, in one piece: threads may share the file."""
        with self._lock:
            statements = [self._statement(statement) for statement in unit.statements]
            self._write({"unit": {**_set_fields(unit), "inputs": sorted(unit.inputs), "statements": statements}})
            # With each unit: what a killed run has recorded so far is worth trying.
            self._file.flush()

    def write_tables(self, tables: Iterable[Table]) -> None:
        """Append tables; of one that was written before, what is true now."""
        with self._lock:
            for table in tables:
                keys = [{"column": key.columns[0], "table": key.parent} for key in table.foreign_keys]
                self._write({"table": {**asdict(table), "foreign_keys": keys}})

    def close(self, *, tests: int, notes: Iterable[str] = ()) -> None:
        """Append what is known at the end, and close the file."""
        with self._lock, self._file:
            self._write({"end": {"tests": tests, "notes": as_data(list(notes))}})

    def _statement(self, statement: RecordedStatement) -> dict[str, Any]:
        site = statement.site
        short = {**_set_fields(statement), "sql": self._number("sql", statement.sql, lambda: statement.sql)}
        if site is not None:
            short["site"] = self._number("site", site, lambda: asdict(site))
        if statement.read:
            short["read"] = [self._row(row) for row in statement.read]
        return short

    def _row(self, row: RowRead) -> int:
        # The values are not in its hash.
        return self._number("row", (row, *row.values.values()), lambda: _set_fields(row))

    def _number(self, kind: str, value: Hashable, data: Callable[[], object]) -> int:
        """Return the number of a template, a site or a row; write it if it is new."""
        numbers = self._numbers[kind]
        if value not in numbers:
            if len(numbers) == _MOST_NUMBERED:
                numbers.clear()
            numbers[value] = self._counts[kind]
            self._counts[kind] += 1
            self._write({kind: data()})
        return numbers[value]

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")


def _set_fields(record: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults; most do not."""
    pairs = ((name, default, getattr(record, name)) for name, default in _defaults(record.__class__))
    return {name: value for name, default, value in pairs if value != default and value not in ((), {})}


@functools.cache
def _defaults(kind: Any) -> list[tuple[str, Any]]:
    return [(field.name, field.default) for field in fields(kind)]


def read_recording(path: Path) -> Recording:
    """Return what the file holds. Raises `FinderError` unless this version wrote it."""
    tables: dict[str, Table] = {}
    units: list[Unit] = []
    notes: dict[str, None] = {}
    tests = 0
    numbered: dict[str, list[Any]] = defaultdict(list)
    for record in _records(path):
        match record:
            case {"recording": _}:  # of another process: all is numbered anew
                numbered.clear()
            case {"unit": unit}:
                units.append(_unit(unit, numbered))
            case {"table": table}:
                unique = tuple(map(UniqueIndex.parse, table["unique"]))
                keys = tuple(ForeignKey(parent=key["table"], columns=(key["column"],)) for key in table["foreign_keys"])
                table |= {"key": tuple(table["key"]), "unique": unique, "foreign_keys": keys}
                tables[table["name"]] = Table(**table)
            case {"end": end}:
                tests += end["tests"]
                notes |= dict.fromkeys(from_data(end["notes"]))
            case _:
                ((kind, data),) = record.items()
                numbered[kind].append(_NUMBERED[kind](data))
    return Recording(tables=tables, units=tuple(units), tests=tests, notes=tuple(notes))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    is_recording = False
    # A killed run may have cut its last character in two.
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(ValueError):
                record = json.loads(line)
                is_recording = is_recording or (isinstance(record, dict) and record.get("recording") == _VERSION)
                if not is_recording:
                    break
                yield record
    if not is_recording:
        raise FinderError(f"{path} is not a recording of version {_VERSION}: record the tests again with --find-races")


_NUMBERED: Mapping[str, Callable[[Any], Any]] = {
    "sql": str,
    "site": lambda data: Site(**data),
    "row": lambda data: RowRead(**data),
}
"""How what is numbered is read."""


def _unit(value: dict[str, Any], numbered: Mapping[str, Sequence[Any]]) -> Unit:
    statements = tuple(
        RecordedStatement(
            **{
                **statement,
                "sql": numbered["sql"][statement["sql"]],
                "site": numbered["site"][statement["site"]] if "site" in statement else None,
                "params": tuple(statement.get("params", ())),
                "types": tuple(statement.get("types", ())),
                "read": tuple([numbered["row"][number] for number in statement.get("read", ())]),
            }
        )
        for statement in value["statements"]
    )
    order = tuple(value.get("key_order", ()))
    return Unit(**{**value, "inputs": frozenset(value["inputs"]), "statements": statements, "key_order": order})


def merge_recordings(parts: Sequence[Path], target: Path) -> None:
    """Write the recordings of several processes into one file, and delete the parts."""
    with target.open("wb") as file:
        for part in parts:
            file.write(part.read_bytes() + b"\n")  # the last line of a process that was killed may have no end
    # Only now: if something fails before, the parts are still there.
    for part in parts:
        part.unlink()
