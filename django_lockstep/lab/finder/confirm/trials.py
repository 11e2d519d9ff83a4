"""A request that is sent alone, to see what it reads and writes: with the keys as they are, which stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import connections

from django_lockstep.lab.finder.confirm.forks import apart_from_the_test
from django_lockstep.lab.finder.derive.history import History, Row, UnitStep
from django_lockstep.lab.finder.record.fingerprints import NULL, Fingerprints
from django_lockstep.lab.finder.record.reader import StatementReader, is_of_interest
from django_lockstep.lab.finder.record.recording import RecordedStatement, Table, Unit

__all__ = ["Identity", "Trial"]

Identity = Mapping[str, str]
"""What a row can be found by: the values of its columns that are unique, the primary key among them."""


@dataclass(frozen=True)
class Trial:
    """What a request answered, and what it did."""

    answer: str
    history: History

    @classmethod
    def of(cls, actor: Callable[[Any], Any]) -> Trial:
        """Send it. What it writes stays there, and its errors are raised."""
        tables: dict[str, Table] = {}
        # Without a key: values are needed as they are, to be put into other requests.
        reader = StatementReader(
            Fingerprints(None), lambda found: tables.update({table.name: table for table in found})
        )
        statements: list[RecordedStatement] = []

        def note(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
            result = execute(sql, params, many, context)
            driver = context["connection"].connection
            text = sql if isinstance(sql, str) else sql.as_string(driver)
            if is_of_interest(text) and hasattr(driver, "pgconn"):
                statements.append(reader.read(text, params, context, keys={}, many=many))
            return result

        with ExitStack() as stack:
            stack.enter_context(apart_from_the_test())
            for connection in connections.all():
                stack.enter_context(connection.execute_wrapper(note))
            answer = str(actor(None))
        unit = Unit(test="", kind="request", name="", number=0, statements=tuple(statements))
        return cls(answer, History(unit, tables))

    @property
    def is_accepted(self) -> bool:
        """Whether the request was not refused."""
        return self.answer.startswith(("2", "3"))

    @cached_property
    def changed(self) -> frozenset[Row]:
        """The rows that it changed or locked, less those that it made."""
        rows = (self.history.locked_rows(step) for step in self.history.steps)
        return frozenset().union(*rows) - self.history.made

    @cached_property
    def met(self) -> Mapping[Row, Identity]:
        """The rows that it read, changed or referred to, less those that it made."""
        found: dict[Row, dict[str, str]] = {}
        for step in self.history.steps:
            for (table, key), values in self._met_in(step):
                if (table, key) not in self.history.made and len(self.history.table(table).key) == 1:
                    named = {self.history.table(table).key[0]: key.removeprefix("=")}
                    found.setdefault((table, key), named).update(values)
        return found

    def _met_in(self, step: UnitStep) -> Iterator[tuple[Row, Identity]]:
        history = self.history
        for each in step.statement.read:
            columns = {index.columns[0] for index in history.table(each.table).unique if len(index.columns) == 1}
            if key := history.key_of(step, each):
                known = {name: text for name, text in each.values.items() if name in columns and text != NULL}
                yield (each.table, key), {name: text.removeprefix("=") for name, text in known.items()}
        for row in history.locked_rows(step) | history.references(step, step.template.table):
            yield row, {}

    def rows(self, table: str) -> list[Identity]:
        """Return its rows of a table: those that it changed or locked, then the others; both in the order of keys."""
        met = [row for row in self.met if row[0] == table]
        return [self.met[row] for row in sorted(met, key=lambda row: (row not in self.changed, _sortable(row[1])))]

    def interferes_with(self, other: Trial) -> bool:
        """Whether it changes or locks a row that the other one met, or writes into a table that the other one reads."""
        writes = self.history.writes("INSERT", "UPDATE", "DELETE")
        anywhere = {step.template.table for step in writes if not self.history.changed_rows(step)}
        looked = {table for step in other.history.steps for table in step.template.tables}
        return bool(self.changed & other.met.keys() or anywhere & looked)


def _sortable(key: str) -> tuple[int, str]:
    text = key.removeprefix("=")
    return (int(text) if text.isdigit() else 0, text)
