"""Sends the compiled statements to PostgreSQL: each changes an account together with its entry.

Each is the SQL of the query set API for the same work, compiled once for a model and a database. A statement that
writes has the UPDATE in a common table expression, from whose RETURNING the entry is inserted: one round trip, and both
happen or neither does (PostgreSQL documentation, section 7.8.4, data-modifying WITH).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.db import connections, models

from accounts.abstract import AbstractBaseAccount
from accounts.amounts import TOO_LARGE
from accounts.contrib.compiled.compiling import Compiled
from accounts.contrib.compiled.obstacles import has_receivers, obstacles
from accounts.contrib.compiled.statements import ENTRY_PARAMETERS, Statements, WaitMode
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.versions import seen_version
from django_lockstep.locking.writes import auto_now_values


class StatementRunner:
    """Runs the statements of one account model on one database; `runner_for` returns it where they may be used.

    They are correct at READ COMMITTED, because an UPDATE that waited for a row sees the row's newest version
    (PostgreSQL documentation, section 13.2.1); above, such a wait ends with a serialization failure. They raise
    Django's database errors.
    """

    def __init__(self, model: type[AbstractBaseAccount], using: str) -> None:
        self.model = model
        self.using = using
        self.statements = Statements(model, using)
        self._attnames = [field.attname for field in model._meta.concrete_fields]
        connection: Any = connections[using]
        columns: Any = [field.get_col(model._meta.db_table) for field in model._meta.concrete_fields]
        # From the driver's values to the fields'.
        self._converters = [
            (index, column, convert)
            for index, column in enumerate(columns)
            for convert in connection.ops.get_db_converters(column) + column.get_db_converters(connection)
        ]

    def change(self, account: AbstractBaseAccount, amount: Decimal) -> bool:
        """Write the balance that was read plus the signed amount, with an entry.

        The account then holds what was written. False if the row has another version than the account was read with, or
        does not exist. Waits for sessions that have the row locked. Raises as ``balance_after`` does, before any SQL.
        """
        seen = seen_version(account)
        changes = {
            **auto_now_values(self.model),
            "balance": account.balance_after(amount),
            self.statements.version: seen + 1,
        }
        row = {"pk": account.pk, "seen": seen, "next": seen + 1, "amount": amount}
        values = {**self._default_values(), **changes, **row}
        written = self.statements.write.write(connections[self.using], values)
        if written:
            apply_written(account, {**changes, "entry_count": account.entry_count + 1})
        return bool(written)

    def lock_and_add(self, pk: object, amount: Decimal, *, wait: WaitMode = "queue") -> AbstractBaseAccount | None:
        """Lock the row ``FOR NO KEY UPDATE``, and add a signed amount with its entry, in one statement.

        Return the account as written; None where it does not exist, or the overdraft limit or the size of a balance do
        not allow the new one.

        In the ``queue`` a transaction-level advisory lock on the account is taken before the row lock: all sessions
        that wait for a row wake at each commit and compete for it, an advisory lock is granted in order of arrival.
        Only for the first statement of a transaction: a session that already has the row and then requested the
        advisory lock would deadlock with those that have that and wait for the row.
        """
        limits = {"least": -amount, "bound": TOO_LARGE - amount}
        row = {"pk": pk, "queue": _queue_key(self.model, pk), "amount": amount}
        values = {**self._default_values(), **limits, **auto_now_values(self.model), **row}
        return self._account(self.statements.lock_and_add[wait], values)

    def _default_values(self) -> dict[str, Any]:
        """Return the values of an entry that no caller gives: NULL, and what ``pre_save`` makes for other fields."""
        new: Any = self.statements.entry() if self.statements.extras else None
        return {**_NO_VALUES, **{field.attname: field.pre_save(new, add=True) for field in self.statements.extras}}

    def _account(self, compiled: Compiled, values: Mapping[str, object]) -> AbstractBaseAccount | None:
        """Return the account of the row that the statement returns, with its columns as Python values."""
        rows = compiled.fetch(connections[self.using], values)
        if not rows:
            return None
        row = list(rows[0])
        for index, column, convert in self._converters:
            row[index] = convert(row[index], column, connections[self.using])
        return self.model.from_db(self.using, self._attnames, row)


_NO_VALUES: dict[str, Any] = dict.fromkeys(ENTRY_PARAMETERS)


def _queue_key(model: type[models.Model], pk: object) -> int:
    """Return the key of the advisory lock in which writers of the row queue: 64 bits of a hash of table and key."""
    # An advisory lock's key is a bigint. Two rows with the same hash wait for each other now and then, which is
    # harmless.
    name = f"accounts.contrib.compiled:{model._meta.db_table}:{model._meta.pk.to_python(pk)}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def runner_for(model: type[AbstractBaseAccount], using: str) -> StatementRunner | None:
    """Return the runner for this model's accounts; None where the methods must run, see `obstacles`."""
    runner = _runner(model, using)
    # Receivers are asked for each time, because they can be connected while the process runs; the rest is cached.
    return None if runner is None or has_receivers(model, runner.statements.entry) else runner


def autocommit_runner(model: type[AbstractBaseAccount], using: str) -> StatementRunner | None:
    """Return `runner_for`'s runner if no transaction is open; None in one, because its lock order is the caller's."""
    return runner_for(model, using) if commits_each_statement(connections[using]) else None


@functools.cache  # bounded by the number of models and databases
def _runner(model: type[AbstractBaseAccount], using: str) -> StatementRunner | None:
    return None if obstacles(model, using) else StatementRunner(model, using)
