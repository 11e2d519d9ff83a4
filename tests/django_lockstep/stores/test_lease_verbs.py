"""The verbs of leases on both stores, and by the statements for other databases."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from django_lockstep.stores.protocol import LeaseStore
from django_lockstep.stores.terms import Grant, Holder, claim
from tests.support.sessions import Session

pytestmark = pytest.mark.parametrize(
    "options", ["postgresql", "portable", pytest.param("dynamodb", marks=pytest.mark.slow)], indirect=True
)


def holder_in(store: LeaseStore) -> Holder:
    holder = store.get("k")
    assert holder is not None
    return holder


def acquire(store: LeaseStore, **options: Any) -> Grant:
    answer = store.acquire(claim("k", 60, **options))
    assert isinstance(answer, Grant)
    return answer


def test_it_is_for_one_at_a_time(store: LeaseStore) -> None:
    grant = acquire(store, owner="ada", data=[1])
    refusal = store.acquire(claim("k", 60))
    assert isinstance(refusal, Holder)
    assert (refusal.owner, refusal.token, refusal.data, refusal.released) == ("ada", grant.token, [1], False)
    assert refusal.since == grant.since
    assert 30 < refusal.remaining <= 60


def test_get_and_list(store: LeaseStore) -> None:
    assert store.get("k") is None
    assert list(store.list()) == []
    grant = acquire(store)
    other = store.acquire(claim("a", 60))
    assert isinstance(other, Grant)
    assert holder_in(store).token == grant.token
    assert [holder.key for holder in store.list()] == ["a", "k"]
    assert store.release("a", other.token)
    assert [holder.key for holder in store.list()] == ["k"]


def test_tokens_only_grow(store: LeaseStore, expire: Callable[[str], None]) -> None:
    tokens = [acquire(store).token]
    assert store.release("k", tokens[-1])
    tokens.append(acquire(store).token)
    expire("k")
    tokens.append(acquire(store).token)
    assert tokens == sorted(set(tokens))


def test_an_expired_lease_is_held_again_until_it_is_taken(store: LeaseStore, expire: Callable[[str], None]) -> None:
    first = acquire(store)
    expire("k")
    assert store.renew("k", first.token, ttl=60)
    assert isinstance(store.acquire(claim("k", 60)), Holder)
    expire("k")
    second = acquire(store)
    assert not store.renew("k", first.token, ttl=600)
    assert not store.note("k", first.token, data="1")
    assert not store.release("k", first.token)
    assert store.renew("k", second.token, ttl=60)


def test_a_renewal_never_shortens(store: LeaseStore) -> None:
    token = acquire(store).token
    assert store.renew("k", token, ttl=600)
    assert store.renew("k", token, ttl=1)
    assert holder_in(store).remaining > 590


def test_a_lease_is_released_once(store: LeaseStore) -> None:
    token = acquire(store).token
    assert store.release("k", token)
    assert not store.release("k", token)
    assert not store.renew("k", token, ttl=60)
    assert store.get("k") is None


def test_data_stays_until_a_holder_replaces_it(store: LeaseStore) -> None:
    assert acquire(store).data == "null"
    assert store.release("k", holder_in(store).token)
    left = acquire(store, data={"done": 7})
    assert store.note("k", left.token, data='{"done": 8}')
    assert store.release("k", left.token)
    again = acquire(store)
    assert json.loads(again.data) == {"done": 8}
    assert store.release("k", again.token)
    assert acquire(store, data=None).data == "null"


def test_it_stays_taken_for_at_least(store: LeaseStore) -> None:
    assert store.release("k", acquire(store).token, at_least=600, held=0.0)
    holder = holder_in(store)
    assert holder.released
    assert 590 < holder.remaining <= 600
    assert isinstance(store.acquire(claim("k", 60)), Holder)


def test_a_waiter_gets_it_after_the_release(store: LeaseStore, other: Session) -> None:
    held = acquire(store)
    waiting = other.start(store.acquire, claim("k", 60), wait=20)
    assert store.release("k", held.token)
    granted = waiting.result(20)
    assert isinstance(granted, Grant)
    assert granted.token > held.token


def test_an_abandoned_acquire_is_released(store: LeaseStore, other: Session) -> None:
    acquire(store, owner="ada")
    other.run(store.abandon, "k", "bob")
    assert store.get("k") is not None
    other.run(store.abandon, "k", "ada")
    assert store.get("k") is None


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b"])
def test_a_wrong_key_is_an_error_before_any_call(store: LeaseStore, key: str) -> None:
    with pytest.raises(ValueError, match="key must"):
        store.get(key)


def test_of_many_threads_one_gets_it(store: LeaseStore, open_session: Callable[[], Session]) -> None:
    sessions = [open_session() for _ in range(8)]
    answers = [session.start(store.acquire, claim("k", 60)) for session in sessions]
    granted = [answer.result(20) for answer in answers]
    assert [isinstance(answer, Grant) for answer in granted].count(True) == 1
