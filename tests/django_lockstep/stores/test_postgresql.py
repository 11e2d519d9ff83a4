"""What is PostgreSQL's alone: items join the open transaction, and tokens are forgotten after a day."""

from datetime import timedelta

import pytest
from django.db import NotSupportedError, connections, transaction
from django.db.models import F

from django_lockstep.leases import LeaseHandle
from django_lockstep.leases.asking import ask
from django_lockstep.leases.testing import expire
from django_lockstep.locking import SerializationFailure, isolated_transaction
from django_lockstep.stores import Holder, Put, Store, TokenReused, claim, get_store
from django_lockstep.stores.models import StoredToken
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def store() -> Store:
    return get_store("postgresql")


def new(store: Store, key: str) -> int:
    version = store.put_if_absent(key, {})
    assert version is not None
    return version


def test_writes_are_undone_with_the_open_transaction(store: Store) -> None:
    with transaction.atomic():
        assert store.put_if_absent("i", {})
        assert store.transact([Put("j", {})], token="t")
        assert not store.transact([Put("j", {}), Put("l", {})])
        transaction.set_rollback(True)
    assert [store.read(key) for key in ("i", "j", "l")] == [None, None, None]
    assert store.transact([Put("other", {})], token="t")


def test_a_guard_holds_until_the_open_transaction_ends(store: Store, other: Session) -> None:
    handle = ask(store, claim("k", 60), wait=0)
    assert isinstance(handle, LeaseHandle)
    with transaction.atomic():
        assert store.transact([Put("i", {})], guards=[handle])
        other.run(expire, "k")
        refusal = other.run(store.acquire, claim("k", 60))
        assert isinstance(refusal, Holder)
        assert refusal.under_guard
    assert handle.release()


def test_a_stale_snapshot_is_a_serialization_failure(store: Store, other: Session) -> None:
    version = new(store, "a")
    with pytest.raises(SerializationFailure), isolated_transaction(isolation_level="repeatable read"):
        assert store.read("a") is not None
        assert other.run(store.update_if_unchanged, "a", {}, version=version)
        store.update_if_unchanged("a", {}, version=version)


def test_tokens_are_forgotten_after_a_day(store: Store) -> None:
    assert store.transact([Put("i", {})], token="t")
    with pytest.raises(TokenReused):
        store.transact([Put("j", {})], token="t")
    StoredToken.objects.update(created_at=F("created_at") - timedelta(days=1, seconds=1))
    assert store.transact([Put("j", {})], token="t")


def test_other_databases_have_no_items(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    with pytest.raises(NotSupportedError, match="need PostgreSQL or DynamoDB, not sqlite"):
        store.put_if_absent("i", {})
