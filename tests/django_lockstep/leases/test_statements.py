"""What the verbs promise on every database: PostgreSQL's own SQL, and the conditional UPDATEs for all others."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import NotSupportedError, connections, transaction

from django_lockstep.leases.models import Lease
from django_lockstep.leases.portable import PortableStatements
from django_lockstep.leases.postgresql import PostgresStatements
from django_lockstep.leases.statements import LeaseStatements
from django_lockstep.leases.testing import expire
from django_lockstep.stores.terms import Grant, Holder, claim
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


@pytest.fixture
def statements(new: Callable[[], LeaseStatements], transactional_db: None) -> LeaseStatements:
    return new()


def acquire(statements: LeaseStatements, **options: Any) -> Grant:
    answer = statements.attempt(claim("k", 60, **options), timeout=5)
    assert isinstance(answer, Grant)
    return answer


def test_it_is_for_one_at_a_time(statements: LeaseStatements) -> None:
    grant = acquire(statements, owner="ada", data=[1])
    refusal = statements.attempt(claim("k", 60), timeout=5)
    assert isinstance(refusal, Holder)
    assert (refusal.owner, refusal.token, refusal.since, refusal.data) == ("ada", grant.token, grant.since, [1])
    assert 30 < refusal.remaining <= 60
    assert statements.holder("k", timeout=5) is not None


def test_tokens_rise_through_release_and_expiry(statements: LeaseStatements) -> None:
    tokens = [acquire(statements).token]
    statements.release("k", tokens[-1], at_least=0, timeout=5)
    tokens.append(acquire(statements).token)
    expire("k")
    tokens.append(acquire(statements).token)
    assert tokens == sorted(set(tokens))


def test_data_stays_until_a_holder_replaces_it(statements: LeaseStatements) -> None:
    assert acquire(statements).data == "null"
    statements.release("k", Lease.objects.get().token, at_least=0, timeout=5)
    left = acquire(statements, data={"done": 7})
    assert statements.note("k", left.token, data='{"done": 8}', timeout=5)
    assert statements.release("k", left.token, at_least=0, timeout=5)
    assert not statements.note("k", left.token, data="9", timeout=5)
    assert json.loads(acquire(statements).data) == Lease.objects.get().data == {"done": 8}
    expire("k")
    assert acquire(statements, data=None).data == "null"
    assert Lease.objects.get().data is None


def test_a_key_that_nobody_has_held_can_be_refused(statements: LeaseStatements) -> None:
    assert statements.attempt(claim("k", 60, only_if_exists=True), timeout=5) is None
    assert not Lease.objects.exists()
    acquire(statements)
    expire("k")
    acquire(statements, only_if_exists=True)


def test_refresh_and_release_belong_to_the_token(statements: LeaseStatements) -> None:
    first = acquire(statements)
    expire("k")
    assert statements.refresh("k", first.token, ttl=60, timeout=5)
    expire("k")
    second = acquire(statements)
    assert not statements.refresh("k", first.token, ttl=600, timeout=5)
    assert not statements.release("k", first.token, at_least=0, timeout=5)
    assert statements.release("k", second.token, at_least=0, timeout=5)
    assert not statements.release("k", second.token, at_least=0, timeout=5)
    assert not statements.refresh("k", second.token, ttl=600, timeout=5)
    assert statements.holder("k", timeout=5) is None


def test_a_refresh_never_shortens(statements: LeaseStatements) -> None:
    grant = acquire(statements)
    statements.refresh("k", grant.token, ttl=600, timeout=5)
    statements.refresh("k", grant.token, ttl=1, timeout=5)
    holder = statements.holder("k", timeout=5)
    assert holder is not None
    assert holder.remaining > 590


def test_at_least(statements: LeaseStatements) -> None:
    statements.release("k", acquire(statements).token, at_least=600, timeout=5)
    holder = statements.holder("k", timeout=5)
    assert holder is not None
    assert holder.released
    assert 590 < holder.remaining <= 600


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
