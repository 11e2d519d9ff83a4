"""What the documentation says that each operation needs of the database is what the operation sends.

Where a row of the table differs, the failure has the row as it must be.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test import RequestFactory

from accounts.models import Account
from django_lockstep.editing import check_in, check_out, extend, status_of, take_over, writing
from django_lockstep.editing.models import CheckOut
from django_lockstep.http import check_preconditions, etag
from django_lockstep.idempotency import idempotent
from django_lockstep.leases.models import Lease
from django_lockstep.locking import (
    claim,
    isolated_transaction,
    lock_row,
    lock_rows,
    retry_on_conflict,
    update_in_order,
    verify_unchanged,
)
from tests.support.factories import AccountFactory, UserFactory
from tests.support.pages import ROOT
from tests.testapps.press.models import Article, Author, Report, Review
from tests.testapps.shop.models import Seat

PAGE = ROOT / "docs" / "reference" / "databases.md"
pytestmark = pytest.mark.django_db(transaction=True)

NO_SQL, PLAIN, REFUSED = "no SQL", "plain SQL", "refused"

# By the words of the page; strings and comments in the SQL are left out before.
NEEDS = {
    "savepoint": r"^SAVEPOINT\b",
    "FOR UPDATE": r"\bFOR UPDATE\b",
    "FOR NO KEY UPDATE": r"\bFOR NO KEY UPDATE\b",
    "FOR SHARE": r"\bFOR SHARE\b",
    "FOR KEY SHARE": r"\bFOR KEY SHARE\b",
    "NOWAIT": r"\bNOWAIT\b",
    "SKIP LOCKED": r"\bSKIP LOCKED\b",
    "advisory lock": r"\bpg_(try_)?advisory_xact_lock",
    "RETURNING": r"\bRETURNING\b",
    "SET LOCAL": r"\bSET LOCAL\b|\bset_config\(.*?, true\)",
    "isolation level": r"\bSET TRANSACTION ISOLATION LEVEL\b",
    "a COMMIT that may fail": r"\bISOLATION LEVEL SERIALIZABLE\b",
    "sequence": r"\bnextval\b",
    "session state": r"\bpg_(try_)?advisory_lock|^LISTEN\b|^SET (?!LOCAL|TRANSACTION)|\bset_config\(.*?, false\)",
}


# Every statement that a piece of code sends to PostgreSQL, with the functions that the server runs for it.

_FUNCTIONS = """
    SELECT prosrc, prorettype = 'trigger'::regtype, lanname = 'plpgsql'
    FROM pg_proc JOIN pg_language ON pg_language.oid = prolang WHERE pg_proc.oid = ANY (%s)
"""


@dataclass
class Recording:
    """What was sent and run."""

    texts: list[str] = field(default_factory=list)
    """The statements, then the bodies of the functions."""
    in_transaction: bool = False
    """Whether one of the statements was sent inside of a transaction."""
    runs_trigger: bool = False
    runs_plpgsql: bool = False
    """Whether PL/pgSQL ran, as a trigger or called by a statement."""

    def note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        self.texts.append(str(sql))
        self.in_transaction |= connection.in_atomic_block
        return execute(sql, params, many, context)


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the block on the test's connection. Needs PostgreSQL 15, and to be a superuser there."""
    recording = Recording()
    _send("SET track_functions = 'all'")
    try:
        before = _calls()
        with connection.execute_wrapper(recording.note):
            yield recording
        called = [function for function, calls in _calls().items() if calls != before.get(function)]
    finally:
        _send("RESET track_functions")
    for body, is_trigger, is_plpgsql in _send(_FUNCTIONS, called):
        recording.texts.append(body)
        recording.runs_trigger |= is_trigger
        recording.runs_plpgsql |= is_plpgsql


def _calls() -> dict[int, int]:
    _send("SELECT pg_stat_force_next_flush()")
    return dict(_send("SELECT funcid, calls FROM pg_stat_user_functions"))


def _send(sql: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []


def in_transaction(function: Callable[..., object], *args: Any, **options: Any) -> None:
    """Call it in a transaction, which it asks for: the caller's, if there is one."""
    with nullcontext() if connection.in_atomic_block else transaction.atomic():
        function(*args, **options)


def serializable() -> None:
    with isolated_transaction(isolation_level="serializable"):
        Seat.objects.count()


def save(row: Any, name: str, value: str) -> None:
    setattr(row, name, value)
    row.save()


def save_checked_out(rows: Any) -> None:
    with writing(rows.user):
        save(rows.review, "text", "new")


def match(seat: Seat) -> None:
    check_preconditions(RequestFactory().put("/", headers={"If-Match": etag(seat)}), seat)


OPERATIONS: dict[str, tuple[Callable[[Any], object], ...]] = {
    "`lock_row`, `lock_rows`": (
        lambda rows: in_transaction(lock_row, Seat, rows.seat.pk),
        lambda rows: in_transaction(lock_rows, Seat, [rows.seat.pk, rows.other.pk]),
    ),
    "with `no_key=False`": (lambda rows: in_transaction(lock_row, Seat, rows.seat.pk, no_key=False),),
    "with `nowait=True`": (lambda rows: in_transaction(lock_row, Seat, rows.seat.pk, nowait=True),),
    "with `skip_locked=True`": (lambda rows: in_transaction(lock_rows, Seat, [rows.seat.pk], skip_locked=True),),
    "with `timeout=`": (lambda rows: in_transaction(lock_row, Seat, rows.seat.pk, timeout=1),),
    "`claim`": (lambda rows: in_transaction(claim, Seat.objects.all()),),
    "`update_in_order`": (lambda rows: update_in_order(Seat.objects.all(), row="B"),),
    "`verify_unchanged`": (lambda rows: in_transaction(verify_unchanged, rows.seat),),
    "`VersionedModel.save`, `update_if_unchanged`": (
        lambda rows: save(rows.seat, "guest", "Ada"),
        lambda rows: Seat.objects.update_if_unchanged(rows.seat.pk, 1, guest="Bob"),
    ),
    "`VersionedModel.delete`": (lambda rows: rows.other.delete(),),
    "`put_if_unchanged` of a new row": (lambda rows: Seat.objects.put_if_unchanged(rows.new_pk, 0, guest="Ada"),),
    "`update_many_if_unchanged`": (
        lambda rows: Seat.objects.update_many_if_unchanged([(rows.seat.pk, 1, {"row": "B"})]),
    ),
    "`queryset.update()` with a guard": (lambda rows: Seat.objects.filter(pk=rows.seat.pk).update(row="C"),),
    "`idempotent`": (lambda rows: idempotent(str(uuid4()), scope="page")(lambda: None)(),),
    "`retry_on_conflict`": (lambda rows: retry_on_conflict(lambda: None)(),),
    "`isolated_transaction`, serializable": (lambda rows: serializable(),),
    "`check_preconditions`, `require_match`": (lambda rows: match(rows.seat),),
    "lease: acquire": (lambda rows: Lease.objects.acquire("new", 60),),
    "lease: acquire with `wait=`": (lambda rows: Lease.objects.acquire("held", 60, wait=0.01),),
    "lease: refresh": (lambda rows: rows.lease.refresh(),),
    "lease: guard": (lambda rows: in_transaction(rows.lease.guard),),
    "lease: release": (lambda rows: rows.lease.release(),),
    "`FencedModel.update_if_token`": (lambda rows: rows.report.update_if_token(rows.lease.token, text="new"),),
    "edit lock: check out, take over": (
        lambda rows: check_out(Article, rows.user, related="none"),
        lambda rows: take_over(Review, rows.user),
    ),
    "edit lock: extend, check in": (lambda rows: extend(Review, rows.user), lambda rows: check_in(Review, rows.user)),
    "edit lock: `status_of`": (lambda rows: status_of(Review),),
    "`EditLockedModel.save` with a guard": (save_checked_out,),
    "`Account.deposit`, `withdraw`, `transfer`, `apply_many`": (
        lambda rows: Account.deposit(rows.pk, 5),
        lambda rows: Account.deposit(rows.pk, 5, idempotency_key="key"),
        lambda rows: Account.withdraw(rows.pk, 5),
        lambda rows: Account.transfer(rows.pk, rows.second.pk, 5),
        lambda rows: Account.apply_many([(rows.pk, 5), (rows.second.pk, -5)]),
    ),
    "`try_deposit`, `try_withdraw`": (
        lambda rows: rows.account.try_deposit(5),
        lambda rows: rows.account.try_withdraw(5),
    ),
}
"""The operations of each row of the table: they need the same."""


def make_rows() -> Any:
    """Return what the operations work on: rows of their own, and nothing checked out or held but these."""
    for model in (CheckOut, Lease):
        model._base_manager.all().delete()
    user = UserFactory.create()
    review = Review.objects.create(author=Author.objects.create())
    check_out(Review, user)
    account, second = AccountFactory.create_batch(2, balance=100)
    seat, other = Seat.objects.create(), Seat.objects.create()
    return SimpleNamespace(
        user=user,
        review=review,
        seat=seat,
        other=other,
        new_pk=other.pk + 1000,
        lease=Lease.objects.acquire("held", 60),
        report=Report.objects.create(),
        account=account,
        pk=account.pk,
        second=second,
    )


def needs(recording: Recording) -> list[str]:
    """Return the words for what the recorded operation needs."""
    texts = [re.sub(r"--.*|'[^']*'", "''", text) for text in recording.texts]
    words = [
        *["transaction"] * recording.in_transaction,
        *["trigger"] * recording.runs_trigger,
        *["PL/pgSQL"] * recording.runs_plpgsql,
        *(need for need, pattern in NEEDS.items() if any(re.search(pattern, text) for text in texts)),
    ]
    return words or [PLAIN if texts else NO_SQL]


def needs_of(operation: Callable[[Any], object], *, inside: bool) -> list[str]:
    """Return what the operation needs, alone or inside a transaction of its caller."""
    rows = make_rows()
    with recorded() as recording:
        try:
            with transaction.atomic() if inside else nullcontext():
                operation(rows)
        except TransactionManagementError:
            assert not recording.texts
            return [REFUSED]
    return needs(recording)


def row_of(name: str, operation: Callable[[Any], object]) -> str:
    alone, inside = (needs_of(operation, inside=inside) for inside in (False, True))
    # A transaction is there already.
    more = [need for need in inside if need not in [*alone, "transaction", PLAIN]]
    return f"| {name} | {', '.join(alone)} | {', '.join(more)} |"


def test_the_table_is_what_the_operations_send() -> None:
    expected = [[row_of(name, operation) for operation in operations] for name, operations in OPERATIONS.items()]
    for rows in expected:
        assert len(set(rows)) == 1, "These need different things:\n" + "\n".join(rows)
    section = PAGE.read_text("utf-8").partition("\n## What each operation needs\n")[2].partition("\n## ")[0]
    written = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert written == [rows[0] for rows in expected], "The table must be:\n" + "\n".join(rows[0] for rows in expected)
