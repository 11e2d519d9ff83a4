"""The statements: PostgreSQL's own SQL, and the conditional UPDATEs for all others.

What the verbs promise on every store is in ``tests/django_lockstep/stores/test_lease_verbs.py``.
"""

from collections.abc import Callable

import pytest
from django.db import NotSupportedError, connections, transaction

from django_lockstep.leases.models import Lease
from django_lockstep.leases.portable import PortableStatements
from django_lockstep.leases.postgresql import PostgresStatements
from django_lockstep.leases.statements import LeaseStatements
from django_lockstep.leases.testing import expire
from django_lockstep.stores.terms import Grant, claim
from tests.support.sessions import Gate, Session, gated

pytestmark = pytest.mark.django_db(transaction=True)

NEW: dict[str, Callable[[], LeaseStatements]] = {
    "postgresql": lambda: PostgresStatements(connections["default"], Lease._meta.db_table),
    "portable": lambda: PortableStatements("default", Lease),
}


@pytest.fixture(params=list(NEW))
def new(request: pytest.FixtureRequest) -> Callable[[], LeaseStatements]:
    """Make the statements; a connection belongs to a thread, and so does a statements."""
    return NEW[request.param]


def acquire(statements: LeaseStatements) -> Grant:
    answer = statements.attempt(claim("k", 60), timeout=5)
    assert isinstance(answer, Grant)
    return answer


@pytest.mark.parametrize("existing", [False, True], ids=["new key", "old key"])
def test_of_two_at_once_one_gets_it(new: Callable[[], LeaseStatements], other: Session, existing: bool) -> None:
    if existing:
        acquire(new())
        expire("k")
    gate = Gate("UPDATE" if existing else "INSERT")
    slow = other.start(gated, gate, lambda: new().attempt(claim("k", 60), timeout=5))
    if new is NEW["portable"]:
        gate.wait_until_reached()
    fast = new().attempt(claim("k", 60), timeout=5)
    gate.open()
    assert [isinstance(answer, Grant) for answer in (fast, slow.result(20))].count(True) == 1


def test_a_claim_that_stood_still_gets_a_token_that_nobody_had(other: Session) -> None:
    new = NEW["portable"]
    gate = Gate("INSERT")
    slow = other.start(gated, gate, lambda: acquire(new()))
    gate.wait_until_reached()
    earlier = acquire(new())
    assert new().attempt(claim("other key", 60), timeout=5)
    expire("k")
    assert Lease.objects.filter(key="k").delete()
    gate.open()

    assert slow.result(20).token > earlier.token
    assert Lease.objects.get(key="k").token == slow.result(20).token


def test_a_guard_that_cannot_be_says_so() -> None:
    with transaction.atomic(), pytest.raises(NotSupportedError, match=r"cannot keep lease 'k' .* update_if_token"):
        PortableStatements("default", Lease).guard("k", 1, within=None)


def test_a_queue_that_cannot_be_says_so() -> None:
    with pytest.raises(NotSupportedError, match="no queue"):
        PortableStatements("default", Lease).queue("k", timeout=1, after=1)
    with pytest.raises(NotSupportedError, match="no queue"):
        PortableStatements("default", Lease).claim_turn("k", timeout=1)


def test_where_there_is_no_queue_waiters_look_again(monkeypatch: pytest.MonkeyPatch, other: Session) -> None:
    monkeypatch.setattr(PostgresStatements, "has_queue", False)
    handle = Lease.objects.acquire("k", 60)
    assert handle is not None
    waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    handle.release()
    assert waiting.result(20) is not None
