"""Methods without an ORM: psycopg alone, and psycopg below Django's connection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.database import connect_alone
from benchmarks.deposit.methods import Deposit, DepositMethod, DepositWorker
from benchmarks.deposit.pgbench import BATCH_SIZE
from benchmarks.deposit.rows import AMOUNT
from benchmarks.deposit.sql import BATCH, ENTRY, LOCK, ONE_STATEMENT, UPDATE, WRITE, fill_template

_NAMES = {name: f"%({name})s" for name in ("account", "accounts", "amount", "balance", "version")}


@functools.cache
def _sql(template: str) -> str:
    return fill_template(template, **{**_NAMES, "accounts": "%(accounts)s::bigint[]"})


def one_statement(template: str, parameter: str = "account") -> Callable[[DepositWorker], Any]:
    """Return the method that sends this one statement, prepared, on psycopg's connection."""

    @contextmanager
    def way(state: DepositWorker) -> Iterator[Deposit]:
        sql = _sql(template)
        with connect_alone() as own, own.cursor() as cursor:

            def deposit(what: Any) -> object:
                cursor.execute(sql, {parameter: what, "amount": AMOUNT}, prepare=True)
                return cursor.fetchone() if cursor.description else cursor.rowcount

            yield deposit

    return way


@contextmanager
def lock_then_write(state: DepositWorker) -> Iterator[Deposit]:
    """Lock, read, write and book in a transaction, all statements prepared."""
    lock, write, entry = map(_sql, (LOCK, WRITE, ENTRY))
    with connect_alone() as own, own.cursor() as cursor:

        def deposit(account: int) -> object:
            with own.transaction():
                cursor.execute(lock, {"account": account}, prepare=True)
                balance, version = cursor.fetchone() or (None, None)
                seen = {"account": account, "amount": AMOUNT, "balance": balance, "version": version}
                cursor.execute(write, seen, prepare=True)
                cursor.execute(entry, seen, prepare=True)
            return balance

        yield deposit


METHODS = {
    method.name: method
    for method in (
        DepositMethod(name="psycopg:update", open=one_statement(UPDATE), with_entries=False),
        DepositMethod(name="psycopg:one-statement", open=one_statement(ONE_STATEMENT)),
        DepositMethod(name="psycopg:lock", open=lock_then_write),
        DepositMethod(name="psycopg:batch", open=one_statement(BATCH, "accounts"), size=BATCH_SIZE),
    )
}
