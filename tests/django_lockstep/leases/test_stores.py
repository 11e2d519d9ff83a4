"""What the verbs promise on every database: PostgreSQL's own SQL, and the conditional UPDATEs for all others."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import NotSupportedError, connections, transaction

from django_lockstep.leases.models import Lease
from django_lockstep.leases.portable import PortableStore
from django_lockstep.leases.postgresql import PostgresStore
from django_lockstep.leases.stores import Store
from django_lockstep.leases.testing import expire
from django_lockstep.stores.terms import Grant, Holder, claim
from tests.support.sessions import Gate, Session, gated

pytestmark = pytest.mark.django_db(transaction=True)

NEW: dict[str, Callable[[], Store]] = {
    "postgresql": lambda: PostgresStore(connections["default"], Lease._meta.db_table),
    "portable": lambda: PortableStore("default", Lease),
}


@pytest.fixture(params=list(NEW))
def new(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Make the store; a connection belongs to a thread, and so does a store."""
    return NEW[request.param]


@pytest.fixture
def store(new: Callable[[], Store], transactional_db: None) -> Store:
    return new()


def acquire(store: Store, **options: Any) -> Grant:
    answer = store.attempt(claim("k", 60, **options), timeout=5)
    assert isinstance(answer, Grant)
    return answer


def test_it_is_for_one_at_a_time(store: Store) -> None:
    grant = acquire(store, owner="ada", data=[1])
    refusal = store.attempt(claim("k", 60), timeout=5)
    assert isinstance(refusal, Holder)
    assert (refusal.owner, refusal.token, refusal.since, refusal.data) == ("ada", grant.token, grant.since, [1])
    assert 30 < refusal.remaining <= 60
    assert store.holder("k", timeout=5) is not None


def test_tokens_rise_through_release_and_expiry(store: Store) -> None:
    tokens = [acquire(store).token]
    store.release("k", tokens[-1], at_least=0, timeout=5)
    tokens.append(acquire(store).token)
    expire("k")
    tokens.append(acquire(store).token)
    assert tokens == sorted(set(tokens))


def test_data_stays_until_a_holder_replaces_it(store: Store) -> None:
    assert acquire(store).data == "null"
    store.release("k", Lease.objects.get().token, at_least=0, timeout=5)
    left = acquire(store, data={"done": 7})
    assert store.note("k", left.token, data='{"done": 8}', timeout=5)
    assert store.release("k", left.token, at_least=0, timeout=5)
    assert not store.note("k", left.token, data="9", timeout=5)
    assert json.loads(acquire(store).data) == Lease.objects.get().data == {"done": 8}
    expire("k")
    assert acquire(store, data=None).data == "null"
    assert Lease.objects.get().data is None


def test_a_key_that_nobody_has_held_can_be_refused(store: Store) -> None:
    assert store.attempt(claim("k", 60, only_if_exists=True), timeout=5) is None
    assert not Lease.objects.exists()
    acquire(store)
    expire("k")
    acquire(store, only_if_exists=True)


def test_refresh_and_release_belong_to_the_token(store: Store) -> None:
    first = acquire(store)
    expire("k")
    assert store.refresh("k", first.token, ttl=60, timeout=5)
    expire("k")
    second = acquire(store)
    assert not store.refresh("k", first.token, ttl=600, timeout=5)
    assert not store.release("k", first.token, at_least=0, timeout=5)
    assert store.release("k", second.token, at_least=0, timeout=5)
    assert not store.release("k", second.token, at_least=0, timeout=5)
    assert not store.refresh("k", second.token, ttl=600, timeout=5)
    assert store.holder("k", timeout=5) is None


def test_a_refresh_never_shortens(store: Store) -> None:
    grant = acquire(store)
    store.refresh("k", grant.token, ttl=600, timeout=5)
    store.refresh("k", grant.token, ttl=1, timeout=5)
    holder = store.holder("k", timeout=5)
    assert holder is not None
    assert holder.remaining > 590


def test_at_least(store: Store) -> None:
    store.release("k", acquire(store).token, at_least=600, timeout=5)
    holder = store.holder("k", timeout=5)
    assert holder is not None
    assert holder.released
    assert 590 < holder.remaining <= 600


@pytest.mark.parametrize("existing", [False, True], ids=["new key", "old key"])
def test_of_two_at_once_one_gets_it(new: Callable[[], Store], other: Session, existing: bool) -> None:
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
        PortableStore("default", Lease).guard("k", 1, within=None)


def test_a_queue_that_cannot_be_says_so() -> None:
    with pytest.raises(NotSupportedError, match="no queue"):
        PortableStore("default", Lease).queue("k", timeout=1, after=1)
    with pytest.raises(NotSupportedError, match="no queue"):
        PortableStore("default", Lease).claim_turn("k", timeout=1)


def test_where_there_is_no_queue_waiters_look_again(monkeypatch: pytest.MonkeyPatch, other: Session) -> None:
    monkeypatch.setattr(PostgresStore, "has_queue", False)
    handle = Lease.objects.acquire("k", 60)
    assert handle is not None
    waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    handle.release()
    assert waiting.result(20) is not None
