"""The statements: PostgreSQL's own SQL, and the conditional UPDATEs for all others.

What the verbs promise on every store is in ``tests/django_lockstep/stores/test_lease_verbs.py``.
"""

import pytest
from django.db import NotSupportedError, transaction

from django_lockstep.leases.database import DatabaseLeases
from django_lockstep.leases.models import Lease
from django_lockstep.leases.portable import PortableLeases
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.leases.testing import expire
from django_lockstep.stores.terms import Grant, claim
from tests.django_lockstep.leases.holding import acquired
from tests.support.sessions import Gate, Session, gated

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[PostgresLeases, PortableLeases])
def store(request: pytest.FixtureRequest) -> DatabaseLeases:
    leases: DatabaseLeases = request.param("default")
    return leases


def acquire(store: DatabaseLeases) -> Grant:
    answer = store.take(claim("k", 60))
    assert isinstance(answer, Grant)
    return answer


@pytest.mark.parametrize("existing", [False, True], ids=["new key", "old key"])
def test_of_two_at_once_one_gets_it(store: DatabaseLeases, other: Session, existing: bool) -> None:
    if existing:
        acquire(store)
        expire("k")
    gate = Gate("UPDATE" if existing else "INSERT")
    slow = other.start(gated, gate, lambda: store.take(claim("k", 60)))
    if isinstance(store, PortableLeases):
        gate.wait_until_reached()
    fast = store.take(claim("k", 60))
    gate.open()
    assert [isinstance(answer, Grant) for answer in (fast, slow.result(20))].count(True) == 1


def test_a_claim_that_stood_still_gets_a_token_that_nobody_had(other: Session) -> None:
    store = PortableLeases("default")
    gate = Gate("INSERT")
    slow = other.start(gated, gate, lambda: acquire(store))
    gate.wait_until_reached()
    earlier = acquire(store)
    assert store.take(claim("other key", 60))
    expire("k")
    assert Lease.objects.filter(key="k").delete()
    gate.open()

    assert slow.result(20).token > earlier.token
    assert Lease.objects.get(key="k").token == slow.result(20).token


def test_a_guard_that_cannot_be_says_so() -> None:
    with transaction.atomic(), pytest.raises(NotSupportedError, match=r"cannot keep lease 'k' .* update_if_token"):
        PortableLeases("default").guard("k", 1)


def test_where_there_is_no_queue_waiters_look_again(monkeypatch: pytest.MonkeyPatch, other: Session) -> None:
    monkeypatch.setattr(PostgresLeases, "_turn", DatabaseLeases._turn)
    handle = acquired()
    waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    handle.release()
    assert waiting.result(20) is not None
