"""Errors carry their data, also to another process."""

import pickle
from datetime import datetime, timezone

import pytest
from django.db import OperationalError

from django_lockstep.leases import Holder, LeaseError, LeaseLost, LeaseNotAcquired, LeaseTimedOut, StaleToken
from django_lockstep.locking import ConcurrencyError
from tests.testapps.press.models import Report

HOLDER = Holder(
    key="k",
    owner="ada",
    token=7,
    since=datetime(2026, 1, 1, tzinfo=timezone.utc),  # noqa: UP017
    remaining=3.25,
    data={"a": [1]},
    released=False,
)


@pytest.mark.parametrize(
    "error",
    [
        LeaseError("text", key="k", token=3),
        LeaseNotAcquired("text", key="k", holder=HOLDER),
        LeaseLost("text", key="k", token=3),
        StaleToken(model=Report, pk=1, token=3, found=4),
        LeaseTimedOut(sqlstate="57014"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_they_survive_pickling(error: LeaseError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
    assert isinstance(again, ConcurrencyError)


def test_what_timed_out_is_djangos_error_too() -> None:
    assert issubclass(LeaseTimedOut, OperationalError)


def test_a_holder_is_named_to_people() -> None:
    assert str(HOLDER) == "has been held by ada since 2026-01-01 00:00:00 and expires in 3.2 s"
