"""Long code: two actors of sixty statements each, which no search finishes, under a directed search."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db import transaction

from accounts.models import Account, Entry
from accounts.races.rows import balances, make_user, open_account, users
from benchmarks.explore.measure import time_sequential
from django_lockstep.lab.explorer import Exploration, Scenario, explore
from django_lockstep.lab.races import Race

_ACCOUNTS = 10
_FEW = 2
"""Schedules of a call that the others are counted from."""
_TIMES = 3


def _work(pks: Sequence[Any], *, first: int) -> None:
    """Read and change accounts in one transaction, as a long request does: 57 statements and COMMIT."""
    with transaction.atomic():
        for turn in range(19):
            pk = pks[(first + turn) % _ACCOUNTS]
            account = Account.objects.get(pk=pk)
            list(Entry.objects.filter(account=pk)[:10])
            if turn % 4:
                users().filter(pk=account.user_id).exists()
            else:
                # Without a lock, so that there is something to be found.
                Account.objects.filter(pk=pk).update(balance=account.balance + 1)


def _set_up() -> list[Any]:
    owner = make_user()
    return [open_account(100, user=owner).pk for _ in range(_ACCOUNTS)]


LONG: dict[str, Race] = {
    "long:sixty-statements": Race(
        name="long:sixty-statements",
        text="Two transactions read ten accounts in turn, and change some of them.",
        scenario=Scenario(
            set_up=_set_up, actors=[partial(_work, first=0), partial(_work, first=5)], invariant=bool, observe=balances
        ),
    )
}
"""By name."""


def measure_long(race: Race) -> dict[str, Any]:
    """Explore the race by a directed search, and return what one more schedule takes."""
    explorations = [_directed(race) for _ in range(_TIMES)]
    few = statistics.median(_directed(race, most=_FEW).seconds for _ in range(_TIMES))
    seconds = statistics.median(exploration.seconds for exploration in explorations)
    schedules = explorations[0].schedules
    schedule, alone = (seconds - few) / (schedules - _FEW), time_sequential(race)
    return {
        "verdict": explorations[0].verdict,
        "schedules": schedules,
        "statements": max(len(end.schedule) for end in explorations[0].outcomes),
        "rate": 1 / schedule,
        "ratio": schedule / alone,
        "seconds": seconds,
    }


def _directed(race: Race, *, most: int | None = None) -> Exploration:
    return explore(race.scenario, directed=True, max_schedules=most, database_is_mine=True)
