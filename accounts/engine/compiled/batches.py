"""Many changes in one statement: accounts locked in primary-key order, every change with its entry, all or nothing."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, connections, models, transaction

from accounts.abstract import AbstractBaseAccount
from accounts.amounts import TOO_LARGE
from accounts.engine.batches import AppliedChange, BalanceChange
from accounts.engine.compiled.runner import StatementRunner, runner_for
from django_lockstep.errors import translated_errors
from django_lockstep.locking.compiled import Compiled, array_literal, fetch, fill_template, parameter, plain
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.writes import auto_now_values, place_type

__all__ = ["BatchStatements", "apply_new", "batch_statements_for"]

# Arrays are one parameter each, so that batches of every length share one prepared statement. ``held`` has the rows as
# they are after the wait for their locks, newer than the statement's snapshot: balances are computed only from it.
# Where an account is missing or a balance would break its limit, nothing is written and no row is returned.
_STATEMENT = """\
WITH given AS MATERIALIZED (
SELECT *, sum(amount) OVER so_far AS moved, row_number() OVER so_far AS place,
lead(number) OVER so_far IS NULL AS is_last
FROM unnest({arrays}) WITH ORDINALITY AS listed ({names}, number)
WINDOW so_far AS (PARTITION BY account ORDER BY number)
), held AS MATERIALIZED (
SELECT {pk} AS account, {target} AS target, {balance} AS balance, {version} AS version, -{overdraft_limit} AS lowest
FROM {table} WHERE {pk} = ANY({accounts}) ORDER BY {pk} FOR NO KEY UPDATE
), planned AS MATERIALIZED (
SELECT given.*, held.target, held.balance + given.moved AS balance_after, held.version + given.place AS version_after,
(given.amount < 0 AND held.balance + given.moved < held.lowest) OR held.balance + given.moved >= {bound} AS is_refused
FROM given JOIN held ON held.account = given.account
), verdict AS MATERIALIZED (
SELECT count(*) = (SELECT count(*) FROM given) AND NOT bool_or(is_refused) AS is_allowed FROM planned
), changed AS (
UPDATE {table} SET {balance} = planned.balance_after, {version} = planned.version_after,
{entry_count} = {table}.{entry_count} + planned.place{auto_now}
FROM planned WHERE {table}.{pk} = planned.account AND planned.is_last AND (SELECT is_allowed FROM verdict)
)
INSERT INTO {entries} ({columns})
SELECT {values} FROM planned WHERE (SELECT is_allowed FROM verdict) ORDER BY number
RETURNING {returned}"""

_AFTER = ("balance_after", "version_after")
_DETAILS = ("idempotency_key", "transfer")
_INTEGERS = (models.IntegerField, models.AutoField)
_LEAST, _MOST = -(2**63), 2**63 - 1


class BatchStatements:
    """The batch statements of one account model on one database; see `batch_statements_for`."""

    def __init__(self, runner: StatementRunner[AbstractBaseAccount]) -> None:
        self.runner = runner
        self.statements = runner.statements
        self.using = runner.using

    def apply(self, changes: Sequence[BalanceChange], pks: list[Any]) -> list[tuple[Any, Decimal, int]]:
        """Write all changes in the order given; return primary key, balance and version of each entry.

        ``pks`` are the accounts' primary keys without duplicates. Returns an empty list, with nothing written, where an
        account is missing or a change is not allowed. Raises ``IntegrityError`` for an idempotency key that was used
        before, and Django's other database errors.
        """
        columns = dict(zip(BalanceChange._fields, zip(*changes, strict=True), strict=True))
        # Four variants of the statement: most batches have neither keys nor transfers, and save two arrays.
        details = tuple(name for name in _DETAILS if any(columns[name]))
        # Such a key would make the cast to bigint fail; no account can have it, so the method raises DoesNotExist.
        if isinstance(pks[0], int) and (pks[0] < _LEAST or pks[-1] > _MOST):
            return []
        arrays = {name: array_literal(columns[name]) for name in ("account", "amount", *details)}
        values = {**auto_now_values(self.runner.model), **arrays, "accounts": array_literal(pks)}
        return fetch(connections[self.using], self.compiled[details], values)

    @functools.cached_property
    def compiled(self) -> dict[tuple[str, ...], Compiled]:
        """The statement, by the optional fields that at least one change has."""
        return {details: self._compile(details) for details in ((), *((name,) for name in _DETAILS), _DETAILS)}

    def _compile(self, details: tuple[str, ...]) -> Compiled:
        names = ("account", "amount", *details)
        into = {"account": "target", "amount": "amount", **dict.fromkeys(details), **dict.fromkeys(_AFTER)}
        columns = [self._column(self.statements.entry, name) for name in into]
        return fill_template(
            _STATEMENT,
            arrays=_join([self._parameter(name, name) for name in names]),
            names=", ".join(names),
            accounts=self._parameter("account", "accounts"),
            bound=str(int(TOO_LARGE)),
            table=self._quote(self.runner.model._meta.db_table),
            auto_now=_join(["", *(self._auto_now_assignment(field) for field in self.statements.auto_now)]),
            entries=self._quote(self.statements.entry._meta.db_table),
            columns=", ".join(columns),
            values=", ".join(value or name for name, value in into.items()),
            returned=", ".join(self._column(self.statements.entry, name) for name in ("pk", *_AFTER)),
            **self._account_columns(),
        )

    def _parameter(self, part: str, name: str) -> Compiled:
        """Return the placeholder of an array, with its type."""
        key = self.runner.model._meta.pk
        types = {
            "account": "bigint" if isinstance(key, _INTEGERS) else place_type(key, connections[self.using]),
            "amount": "numeric",
            "idempotency_key": "text",
            "transfer": "uuid",
        }
        return plain(name) + f"::{types[part]}[]"

    def _account_columns(self) -> dict[str, str]:
        model = self.runner.model
        account: Any = self.statements.entry._meta.get_field("account")
        names = {name: name for name in ("pk", "balance", "overdraft_limit", "entry_count")}
        names["version"] = self.statements.version
        columns = {called: self._column(model, name) for called, name in names.items()}
        return {**columns, "target": self._quote(account.target_field.column)}

    def _auto_now_assignment(self, field: Any) -> Compiled:
        return f"{self._quote(field.column)} = " + Compiled("%s", (parameter(self.runner.model, field.attname),))

    def _column(self, model: type[models.Model], name: str) -> str:
        field: Any = model._meta.pk if name == "pk" else model._meta.get_field(name)
        return self._quote(field.column)

    def _quote(self, name: str) -> str:
        return self.statements.ops.quote_name(name)


def apply_new(model: type[AbstractBaseAccount], changes: dict[int, BalanceChange], *, using: str) -> Any:
    """Apply the changes in one statement; return ``NotImplemented`` where nothing was written."""
    batches = batch_statements_for(runner_for(model, using))
    if batches is None:
        return NotImplemented
    pks = sorted({change.account for change in changes.values()})
    with translated_errors(model=model, pk=pks):
        rows = _send(batches, list(changes.values()), pks)
    if not rows:
        return NotImplemented
    return {
        index: AppliedChange(change[0], change[1], balance, version, entry)
        for (index, change), (entry, balance, version) in zip(changes.items(), rows, strict=True)
    }


def _send(batches: BatchStatements, changes: list[BalanceChange], pks: list[Any]) -> list[Any]:
    """Send the statement; return no rows where one of the idempotency keys was used before."""
    # Only a used key makes the statement fail. A savepoint is needed only inside a transaction, which would be aborted.
    keyed = any(change.idempotency_key for change in changes)
    joins = keyed and not commits_each_statement(connections[batches.using])
    block: AbstractContextManager[None] = transaction.atomic(using=batches.using) if joins else nullcontext()
    try:
        with block:
            return batches.apply(changes, pks)
    except IntegrityError:
        if not keyed:
            raise
        return []


def batch_statements_for(runner: StatementRunner[AbstractBaseAccount] | None) -> BatchStatements | None:
    """Return the batch statements; None without a runner, or where entries have fields that Django computes."""
    return None if runner is None or runner.statements.extras else _batches(runner)


@functools.cache
def _batches(runner: StatementRunner[AbstractBaseAccount]) -> BatchStatements:
    return BatchStatements(runner)


def _join(parts: Sequence[Compiled | str]) -> Compiled:
    whole = Compiled("", ()) + parts[0]
    for part in parts[1:]:
        whole = whole + ", " + part
    return whole
