"""All errors of the library are one tree, which its module draws as it is; they carry data, also between processes."""

import importlib
import pickle
import pkgutil
import re
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

import django_lockstep
from accounts.errors import EntryIsFinal, IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import Account
from django_lockstep import errors, http, leases, locking
from django_lockstep.errors import LockstepError
from django_lockstep.leases import Holder
from tests.testapps.press.models import Report

ROOMS = [
    module.name
    for module in pkgutil.walk_packages(django_lockstep.__path__, "django_lockstep.")
    if module.name.endswith((".errors", ".http.preconditions"))
]


def below(error: type[LockstepError]) -> set[type[LockstepError]]:
    return {error}.union(*(below(child) for child in error.__subclasses__()))


def test_the_drawn_tree_is_the_real_one() -> None:
    for name in ROOMS:
        importlib.import_module(name)
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    ours = {error for error in below(LockstepError) if error.__module__ in ROOMS}
    assert drawn.pop("LockstepError") is None
    assert drawn == {
        error.__name__: next(base.__name__ for base in error.__bases__ if issubclass(base, LockstepError))
        for error in ours - {LockstepError}
    }


def test_every_room_raises_errors_of_the_tree() -> None:
    for name in ROOMS:
        room = importlib.import_module(name)
        public = [getattr(room, each) for each in room.__all__]
        assert all(issubclass(each, LockstepError) for each in public if isinstance(each, type))


FACTS: dict[str, Any] = {"model": Account, "pk": 7, "expected": 1, "found": 2, "sqlstate": "40001"}
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
        locking.ConcurrencyError("told", **FACTS),
        locking.StaleVersionError("told", **FACTS),
        locking.LockNotAvailable("told", **FACTS),
        locking.DeadlockDetected("told", **FACTS),
        locking.SerializationFailure("told", **FACTS),
        locking.RetriesExhausted("told", attempts=3, elapsed=0.5, **FACTS),
        locking.StaleVersionError(target=Account(pk=7)),
        locking.ConcurrencyError(),
        leases.LeaseError("told", key="k", token=3),
        leases.LeaseNotAcquired("told", key="k", holder=HOLDER),
        leases.LeaseLost("told", key="k", token=3),
        leases.LeaseTimedOut(sqlstate="57014"),
        leases.StaleToken(model=Report, pk=1, token=3, found=4),
        http.PreconditionFailed(etag='"1.2"'),
        http.MalformedPrecondition("x"),
        InvalidAmount("told", value="1e5", rule="rule"),
        InsufficientFunds("told", balance=Decimal(1), overdraft_limit=Decimal(0), amount=Decimal(2)),
        IdempotencyKeyReused("told", idempotency_key="k", recorded=Decimal(1)),
        EntryIsFinal("told"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    facts, kept = ({key: value for key, value in vars(each).items() if key != "target"} for each in (error, copy))
    assert (type(copy), str(copy), kept) == (type(error), str(error), facts)


def test_a_holder_is_named_to_people() -> None:
    assert str(HOLDER) == "has been held by ada since 2026-01-01 00:00:00 and expires in 3.2 s"
