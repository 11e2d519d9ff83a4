"""Two consumers of one queue: an account's changes are applied once, and in order.

Requires ``accounts.contrib.queued`` to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import transaction

from accounts.contrib.queued.consuming import apply_batch
from accounts.contrib.queued.models import QueuedChange
from accounts.models import Account, Entry
from accounts.races.rows import open_account
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import ActorFunction, Scenario

__all__ = ["races"]


def races() -> Iterator[Race]:
    """Yield them; a deposit of 10 and the withdrawal that needs it are in the queue of an empty account."""
    for name, text, actors in (
        ("consumers", "Two consumers take a change each; the account's order is kept.", [consume, consume]),
        ("direct", "A consumer applies the queue during a direct deposit.", [consume, deposit]),
    ):
        yield _race(name, text, actors, holds=True)
    yield _race(
        "only-rows-locked",
        "Consumers lock only the changes, with skip_locked: the second one overtakes the first.",
        [consume_in_disorder, consume_in_disorder],
        holds=False,
    )


def _race(name: str, text: str, actors: Sequence[ActorFunction], *, holds: bool) -> Race:
    scenario = Scenario(set_up=_queue, actors=list(actors), invariant=_nothing_was_refused, observe=_booked)
    return Race(name=f"queued:{name}", text=text, scenario=scenario, holds=holds)


def _queue() -> Any:
    account = open_account(0)
    QueuedChange.deposit(account.pk, 10)
    QueuedChange.withdraw(account.pk, 10)
    return account.pk


def consume(pk: object) -> None:
    """Decide about one change."""
    apply_batch(QueuedChange, size=1)


def deposit(pk: object) -> None:
    """Deposit directly, without the queue."""
    Account.deposit(pk, 1)


def consume_in_disorder(pk: Any) -> None:
    """Decide about one change that no other session has locked, as consumers of independent tasks do."""
    with transaction.atomic():
        # The second consumer skips the deposit that the first one has locked, and takes the withdrawal behind it.
        change = QueuedChange.objects.filter(state="pending").select_for_update(skip_locked=True).first()
        if change is not None:
            account = Account.objects.select_for_update(no_key=True).get(pk=pk)
            covered = account.balance + change.amount >= 0
            if covered:
                Account.apply_many([(pk, change.amount)])
            QueuedChange.objects.filter(pk=change.pk).update(state="applied" if covered else "refused")


def _nothing_was_refused(pk: object) -> bool:
    """Whether the deposit came before the withdrawal."""
    return not QueuedChange.objects.filter(state="refused").exists()


def _booked(pk: object) -> list[str]:
    return [str(amount) for amount in Entry.objects.order_by("pk").values_list("amount", flat=True)]
