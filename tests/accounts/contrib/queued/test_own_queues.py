"""What is appended to a queue of a project's own is what saving it would have written."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models.signals import post_save

from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from accounts.models import Account
from tests.accounts.contrib.queued.queues import ComputedChange, OwnChange, SavedChange

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])


@pytest.fixture(autouse=True)
def table(transactional_db: None) -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.create_model(OwnChange)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(OwnChange)


@KEYS
def test_columns_of_its_own_get_their_defaults_in_the_one_statement(
    account: Account, key: str | None, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        appended = OwnChange.deposit(account.pk, 5, idempotency_key=key)
    (row,) = OwnChange.objects.all()
    assert row.pk == appended.pk
    assert (row.note, row.channel, row.wishes, row.weight) == ("", "web", {}, 7)
    assert row.noted_on == appended.noted_on is not None
    assert drain(OwnChange) == 1
    assert appended.wait().balance_after == 105


@KEYS
def test_a_save_of_its_own_is_asked(account: Account, key: str | None) -> None:
    SavedChange.deposit(account.pk, 5, idempotency_key=key)
    assert [row.note for row in OwnChange.objects.all()] == ["saved"]


@KEYS
def test_receivers_of_signals_are_called_for_new_changes(account: Account, key: str | None) -> None:
    heard = []

    def listen(instance: QueuedChange, created: bool, **_: Any) -> None:
        heard.append((instance.amount, created))

    post_save.connect(listen, sender=QueuedChange)
    try:
        QueuedChange.deposit(account.pk, 5, idempotency_key=key)
    finally:
        post_save.disconnect(listen, sender=QueuedChange)
    QueuedChange.deposit(account.pk, 6)
    assert heard == [(5, True)]


def test_a_value_that_the_database_computes_is_computed(account: Account) -> None:
    ComputedChange.deposit(account.pk, 5)
    assert [row.note for row in OwnChange.objects.all()] == ["COMPUTED"]
