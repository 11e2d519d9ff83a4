"""Many changes in one statement: accounts locked in primary-key order, every change with its entry, all or nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connections, models, transaction

from accounts.abstract import AbstractBaseAccount
from accounts.amounts import TOO_LARGE
from accounts.batches import AppliedChange, BalanceChange
from accounts.contrib.compiled.compiling import Compiled, parameter, plain
from accounts.contrib.compiled.runner import StatementRunner, runner_for
from accounts.contrib.compiled.statements import fill_template
from django_lockstep.errors import translated_errors
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.writes import auto_now_values, place_type

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
_INTEGERS = (models.IntegerField, models.AutoField)
_LEAST, _MOST = -(2**63), 2**63 - 1


def apply_changes(model: type[AbstractBaseAccount], changes: list[BalanceChange], *, using: str) -> Any:
    """Apply the changes in one statement; return ``NotImplemented`` where nothing was written."""
    runner = runner_for(model, using)
    if runner is None or runner.statements.extras:  # fields of entries that only Django computes
        return NotImplemented
    pks = sorted({change.account for change in changes})
    # Such a key would make the cast to bigint fail; no account can have it, so the method raises DoesNotExist.
    if isinstance(pks[0], int) and (pks[0] < _LEAST or pks[-1] > _MOST):
        return NotImplemented
    columns = dict(zip(BalanceChange._fields, zip(*changes, strict=True), strict=True))
    arrays = {name: _array_literal(column) for name, column in columns.items()}
    values = {**auto_now_values(model), **arrays, "accounts": _array_literal(pks)}
    with translated_errors(model=model, pk=pks):
        rows = _send(runner, values, keyed=any(columns["idempotency_key"]))
    if not rows:
        return NotImplemented
    return [
        AppliedChange(change.account, change.amount, balance, version, entry)
        for change, (entry, balance, version) in zip(changes, rows, strict=True)
    ]


def _send(runner: StatementRunner, values: dict[str, Any], *, keyed: bool) -> list[Any]:
    """Return primary key, balance and version of each entry.

    None, with nothing written, where an account is missing, a change is not allowed, or an idempotency key was used
    before or is there twice.
    """
    connection, compiled = connections[runner.using], _compile(runner)
    if not keyed:
        return compiled.fetch(connection, values)
    # A used key makes the statement fail. A savepoint is needed only inside a transaction, which would be aborted.
    alone = commits_each_statement(connection)
    with suppress(IntegrityError), nullcontext() if alone else transaction.atomic(using=runner.using):
        return compiled.fetch(connection, values)
    return []


@functools.cache  # bounded by the number of models and databases
def _compile(runner: StatementRunner) -> Compiled:
    model, entry, quote = runner.model, runner.statements.entry, runner.statements.ops.quote_name

    def column(model: type[models.Model], name: str) -> str:
        field: Any = model._meta.pk if name == "pk" else model._meta.get_field(name)
        return quote(field.column)

    key = model._meta.pk
    key_type = "bigint" if isinstance(key, _INTEGERS) else place_type(key, connections[runner.using])
    types = dict(zip(BalanceChange._fields, (key_type, "numeric", "text", "uuid"), strict=True))
    into = {**{name: name for name in (*types, *_AFTER)}, "account": "target"}
    link: Any = entry._meta.get_field("account")
    auto_now = [
        f", {column(model, field.attname)} = " + Compiled("%s", (parameter(model, field.attname),))
        for field in runner.statements.auto_now
    ]
    arrays = [(", " if index else "") + plain(name) + f"::{types[name]}[]" for index, name in enumerate(types)]
    return fill_template(
        _STATEMENT,
        arrays=sum(arrays[1:], arrays[0]),
        names=", ".join(types),
        accounts=plain("accounts") + f"::{key_type}[]",
        bound=str(int(TOO_LARGE)),
        table=quote(model._meta.db_table),
        auto_now=sum(auto_now, Compiled("", ())),
        entries=quote(entry._meta.db_table),
        columns=", ".join(column(entry, name) for name in into),
        values=", ".join(into.values()),
        returned=", ".join(column(entry, name) for name in ("pk", *_AFTER)),
        target=quote(link.target_field.column),
        version=column(model, runner.statements.version),
        **{name: column(model, name) for name in ("pk", "balance", "overdraft_limit", "entry_count")},
    )


def _array_literal(values: Iterable[object]) -> str:
    """Return the values as a PostgreSQL array literal: half the work of having psycopg adapt each value."""
    return "{" + ",".join([str(value) if type(value) in _NEVER_QUOTED else _quoted(value) for value in values]) + "}"


_NEVER_QUOTED = (int, Decimal, UUID)


def _quoted(value: object) -> str:
    if value is None:
        return "NULL"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
