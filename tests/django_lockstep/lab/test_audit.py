"""The audit, on audited_accounts made by hand and by a model of writers that see old versions."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_lockstep.lab.simulator.audit import (
    _HORIZON,
    AuditedAccount,
    AuditedEntry,
    AuditVerdict,
    UpdateReplay,
    audit,
)
from django_lockstep.lab.simulator.tally import Acknowledged

OPENING = Decimal(100)


def booking(amount: int, *, after: int, seen: int) -> AuditedEntry:
    return AuditedEntry(amount=Decimal(amount), balance_after=Decimal(after), version_after=seen + 1)


def ledger(*bookings: AuditedEntry, balance: int, limit: int = 0, account: str = "a") -> AuditedAccount:
    return AuditedAccount(
        account=account,
        opening_balance=OPENING,
        opening_version=1,
        overdraft_limit=Decimal(limit),
        balance=Decimal(balance),
        entries=iter(bookings),
    )


def judged(*accounts: AuditedAccount, **acknowledged: tuple[int, int]) -> AuditVerdict:
    """Return the verdict; ``acknowledged`` has (count, total) by account."""
    return audit(
        accounts,
        acknowledged={name: Acknowledged(count=n, total=Decimal(total)) for name, (n, total) in acknowledged.items()},
    )


GOOD = (booking(50, after=150, seen=1), booking(-30, after=120, seen=2))


def test_a_ledger_that_adds_up_is_correct() -> None:
    verdict = judged(ledger(*GOOD, balance=120), a=(2, 20))
    assert verdict == AuditVerdict(entries=2)
    assert verdict.status == "correct"


def test_the_articles_lost_update() -> None:
    both_saw_the_first = (booking(50, after=150, seen=1), booking(-30, after=70, seen=1))
    verdict = judged(ledger(*both_saw_the_first, balance=70), a=(2, 20))
    assert (verdict.status, verdict.lost_updates, verdict.broken_links) == ("lost", 1, 1)
    assert (verdict.money_lost, verdict.money_difference) == (Decimal(50), Decimal(-50))


def test_losses_of_several_accounts_do_not_cancel_out() -> None:
    up = ledger(booking(-50, after=50, seen=1), booking(30, after=130, seen=1), balance=130)
    down = ledger(booking(50, after=150, seen=1), booking(-30, after=70, seen=1), balance=70, account="b")
    verdict = judged(up, down, a=(2, -20), b=(2, 20))
    assert (verdict.lost_updates, verdict.money_lost, verdict.money_difference) == (2, Decimal(100), Decimal(0))


def test_a_success_without_an_entry_is_lost() -> None:
    verdict = judged(ledger(*GOOD, balance=120), a=(3, 30))
    assert (verdict.status, verdict.missing, verdict.money_lost) == ("lost", 1, Decimal(10))


def test_more_paid_out_than_covered_is_overdrawn() -> None:
    bookings = (booking(-80, after=20, seen=1), booking(-80, after=-60, seen=2))
    verdict = judged(ledger(*bookings, balance=-60, limit=50), a=(2, -160))
    assert (verdict.status, verdict.overdrawn_accounts, verdict.overdrawn_by) == ("overdrawn", 1, Decimal(10))


def test_overdrawn_although_the_balance_hides_it() -> None:
    bookings = (booking(-80, after=20, seen=1), booking(-80, after=20, seen=1))
    verdict = judged(ledger(*bookings, balance=20), a=(2, -160))
    assert (verdict.status, verdict.lost_updates, verdict.overdrawn_by) == ("lost", 1, Decimal(60))


def test_half_a_transfer_is_an_entry_that_was_not_acknowledged() -> None:
    half = ledger(booking(-50, after=50, seen=1), balance=50)
    verdict = judged(half, ledger(balance=100, account="b"))
    assert (verdict.status, verdict.unexpected, verdict.money_lost) == ("inconsistent", 1, Decimal(50))


def test_an_update_without_an_entry_is_inconsistent() -> None:
    verdict = judged(ledger(*GOOD, balance=130), a=(2, 20))
    assert (verdict.status, verdict.money_lost) == ("inconsistent", Decimal(10))


def test_a_balance_that_does_not_follow_is_inconsistent() -> None:
    bookings = (booking(50, after=150, seen=1), booking(-30, after=999, seen=2))
    assert judged(ledger(*bookings, balance=120), a=(2, 20)).status == "inconsistent"


def test_where_nothing_succeeded_nothing_was_tested() -> None:
    assert judged(ledger(balance=100)).status == "untested"


@pytest.mark.parametrize(
    ("balance", "status"), [(120, "correct"), (130, "inconsistent")], ids=["adds up", "does not add up"]
)
def test_with_a_dead_worker_the_ledger_alone_decides(balance: int, status: str) -> None:
    verdict = audit([ledger(*GOOD, balance=balance)], acknowledged=None)
    assert verdict.without_acknowledgements
    assert verdict.status == status


def test_a_dead_worker_hides_no_lost_update() -> None:
    bookings = (booking(50, after=150, seen=1), booking(-30, after=70, seen=1))
    assert audit([ledger(*bookings, balance=70)], acknowledged=None).status == "lost"


# The model: every update sees some version and writes that version's content and itself.


def written(lags: Sequence[int]) -> tuple[list[int], set[int]]:
    """Return the versions that the writers saw, and which updates the last version contains."""
    contents: list[set[int]] = [set()]
    seen = []
    for number, lag in enumerate(lags):
        base = max(0, number - lag)
        seen.append(base)
        contents.append(contents[base] | {number})
    return seen, contents[-1]


LAGS = st.lists(st.integers(0, 8), min_size=1, max_size=60)


@given(LAGS)
def test_lost_updates_are_counted_exactly(lags: list[int]) -> None:
    seen, surviving = written(lags)
    amounts = [3**number for number in range(len(lags))]
    balance = 100 + sum(amounts[number] for number in surviving)
    bookings = [booking(amount, after=0, seen=1 + base) for amount, base in zip(amounts, seen, strict=True)]
    verdict = judged(ledger(*bookings, balance=balance), a=(len(lags), sum(amounts)))
    assert verdict.lost_updates == len(lags) - len(surviving)
    assert (verdict.money_lost == 0) == (verdict.lost_updates == 0)


@given(st.integers(1, 60), st.randoms(use_true_random=False))
def test_entries_written_late_are_no_loss(number: int, random: Any) -> None:
    order = list(range(number))
    random.shuffle(order)
    history = UpdateReplay(1)
    for position in order:
        history.add(1 + position)
    assert history.surviving() == number


def test_an_update_without_an_entry_does_not_hold_up_the_others() -> None:
    history = UpdateReplay(1)
    for seen in [1, *range(3, 5000)]:  # the update that saw version 2 has no entry
        history.add(seen)
    assert len(history.early) < 1000
    assert history.surviving() == 1 + 4997


def test_a_version_from_nowhere_is_survived() -> None:
    history = UpdateReplay(1)
    history.add(10**15)
    assert history.surviving() == 1


def test_memory_does_not_grow_with_the_number_of_entries() -> None:
    history = UpdateReplay(1)
    for seen in range(1, 3 * _HORIZON):
        history.add(seen)
    assert len(history.contained) == _HORIZON
    assert history.surviving() == 3 * _HORIZON - 1
