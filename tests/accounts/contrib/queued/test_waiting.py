"""Who waits for a change is notified when it is decided."""

from typing import Any

import pytest
from django.db import connection, transaction

from accounts.contrib.queued import waiting
from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from tests.support.factories import AccountFactory
from tests.support.sessions import PATIENCE, Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _never_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LONGEST_SILENCE", 10 * PATIENCE)


def watched(change: QueuedChange, sent: list[str]) -> Any:
    """Wait for the change, and note the statements."""

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        sent.append(sql.partition(" ")[0])
        return done

    with connection.execute_wrapper(note):
        return change.wait(5 * PATIENCE)


def test_it_sends_nothing_until_the_change_is_decided(other: Session) -> None:
    account, sent = AccountFactory.create(), list[str]()
    change = QueuedChange.deposit(account.pk, 5)
    ended = other.start(watched, change, sent)
    until(lambda: len(sent) == 3, "the session to listen")
    drain(QueuedChange)
    assert ended.result(PATIENCE).balance_after == 5
    assert sent == ["SELECT", "LISTEN", "SELECT", "SELECT", "UNLISTEN"]
    assert other.run(query, "SELECT count(*) FROM pg_listening_channels()") == 0


def test_the_decisions_about_others_do_not_wake_it(other: Session) -> None:
    account, sent = AccountFactory.create(), list[str]()
    change = QueuedChange.deposit(account.pk, 5)
    ended = other.start(watched, change, sent)
    until(lambda: len(sent) == 3, "the session to listen")
    with transaction.atomic():
        waiting.notify_decided(QueuedChange, [0], using="default")
    drain(QueuedChange)
    assert ended.result(PATIENCE).balance_after == 5
    assert len(sent) == 5


def test_more_decisions_than_a_notification_holds_reach_everybody(other: Session) -> None:
    account, sent = AccountFactory.create(), list[str]()
    changes = [QueuedChange.deposit(account.pk, 1) for _ in range(waiting._AT_ONCE + 1)]
    ended = other.start(watched, changes[-1], sent)
    until(lambda: len(sent) == 3, "the session to listen")
    drain(QueuedChange)
    assert ended.result(PATIENCE).balance_after == len(changes)


def test_in_a_transaction_it_looks_again(other: Session) -> None:
    change = QueuedChange.deposit(AccountFactory.create().pk, 5)
    other.begin()
    ended = other.start(change.wait, PATIENCE)
    drain(QueuedChange)
    assert ended.result(PATIENCE).balance_after == 5
    other.end()
