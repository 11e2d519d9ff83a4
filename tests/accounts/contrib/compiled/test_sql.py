"""The compiled statements are what the query set API would send, for every name that a project may change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from django.db import ProgrammingError, connection, models
from django.db.models import F

from accounts.amounts import TOO_LARGE
from accounts.contrib.compiled.runner import StatementRunner
from accounts.models import AbstractAccount, Account
from django_lockstep.locking.compiled import Compiled
from tests.support.pages import ROOT
from tests.testapps.purses.models import Elsewhere, Purse

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PKS: dict[type[AbstractAccount], Any] = {Account: 7, Purse: UUID(int=7), Elsewhere: 7}

every = pytest.mark.parametrize("model", PKS, ids=lambda model: model.__name__)


class Sent:
    """What the query set API wanted to send."""

    def __init__(self) -> None:
        self.sql = ""

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> None:
        """Serve as an execute wrapper that sends nothing."""
        self.sql = composed(sql, params)


def composed(sql: str, params: Any) -> str:
    ops: Any = connection.ops
    return str(ops.compose_sql(sql, params))


@contextmanager
def kept_back() -> Iterator[Sent]:
    sent = Sent()
    with connection.execute_wrapper(sent), patch("django.utils.timezone.now", return_value=NOW):
        yield sent


def filled(compiled: Compiled, **values: Any) -> str:
    touched = {"updated_at": NOW, "changed_on": NOW.date(), "idempotency_key": None, "transfer": None}
    extras = {"id": UUID(int=1), "channel": "web", "booked_on": NOW.date()}
    return composed(compiled.sql, compiled.bind(connection, {**touched, **extras, **values}))


def rows(model: type[AbstractAccount]) -> models.QuerySet[Any]:
    return model._base_manager.filter(pk=PKS[model])


def bookings(model: type[AbstractAccount]) -> dict[str, Any]:
    """What every UPDATE that books writes beside balance and version."""
    touches = {"updated_at": NOW, **({"changed_on": NOW.date()} if model is Purse else {})}
    return {"entry_count": F("entry_count") + 1, **touches}


@every
def test_reading(model: type[AbstractAccount]) -> None:
    statement = StatementRunner(model, "default").statements.read
    assert filled(statement, pk=PKS[model]) == composed(*rows(model).query.sql_with_params())


@every
def test_locking(model: type[AbstractAccount]) -> None:
    locked = rows(model).select_for_update(no_key=True, nowait=True)
    statement = StatementRunner(model, "default").statements.lock["nowait"]
    assert filled(statement, pk=PKS[model]) == composed(*locked.query.sql_with_params())


@every
@pytest.mark.parametrize("compares", [True, False])
def test_writing_with_and_without_comparing_versions(model: type[AbstractAccount], compares: bool) -> None:
    guarded = rows(model).filter(version=4) if compares else rows(model)
    with kept_back() as sent:
        guarded.update(balance=Decimal("9.50"), version=5, **bookings(model))
    statement = StatementRunner(model, "default").statements.write[compares]
    values = {"pk": PKS[model], "seen": 4, "next": 5, "balance": Decimal("9.50"), "amount": Decimal(1)}
    assert filled(statement, **values).startswith(f"WITH changed AS ({sent.sql} RETURNING ")


@every
@pytest.mark.parametrize("sign", ["minus", "plus"])
def test_adding(model: type[AbstractAccount], sign: Any) -> None:
    amount = Decimal("-2.50") if sign == "minus" else Decimal("2.50")
    allowed: dict[str, Any] = {"balance__gte": -amount - F("overdraft_limit")}
    if sign == "plus":
        allowed = {"balance__lt": TOO_LARGE - amount}
    with kept_back() as sent:
        changes = {"balance": F("balance") + amount, "version": F("version") + 1, **bookings(model)}
        rows(model).filter(**allowed).update(**changes)
    statement = StatementRunner(model, "default").statements.add[sign]
    values = {"pk": PKS[model], "amount": amount, "least": -amount, "bound": TOO_LARGE - amount, "queue": 5}
    queue = " AND (SELECT pg_advisory_xact_lock(5)) IS NOT NULL"
    assert filled(statement, **values).startswith(f"WITH changed AS ({sent.sql}{queue} RETURNING ")


@every
def test_the_entry_has_the_columns_that_the_query_set_api_would_fill(model: type[AbstractAccount]) -> None:
    entry: Any = model.entry_model()
    with kept_back() as sent, suppress(ProgrammingError):  # there is no answer to read the key from
        entry._base_manager.create(account_id=PKS[model], amount=1, balance_after=2, version_after=3)
    theirs = sent.sql.partition(") VALUES")[0]
    values = {"pk": PKS[model], "next": 5, "balance": Decimal(1), "amount": Decimal(1)}
    ours = filled(StatementRunner(model, "default").statements.write[False], **values).partition(" INSERT ")[2]
    assert set(columns(f"INSERT {ours}")) == set(columns(theirs)) - {"created_at"}


def columns(insert: str) -> list[str]:
    return insert.partition("(")[2].partition(")")[0].replace('"', "").split(", ")


def words(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\(\s+", "(", sql)).strip()


def test_the_documentation_shows_the_statement_of_a_deposit_as_it_is() -> None:
    page = (ROOT / "docs" / "measure" / "speed.md").read_text("utf-8")
    (shown,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert words(shown) == words(StatementRunner(Account, "default").statements.lock_and_add["plus", "queue"].sql)
