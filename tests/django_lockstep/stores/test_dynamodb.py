"""What is DynamoDB's alone: answers that are lost, throttling, clocks, and the table."""

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, transaction
from pytest_django import Settings

from django_lockstep.leases import LeaseHandle, lease
from django_lockstep.leases.handles import acquire_from
from django_lockstep.leases.testing import expire
from django_lockstep.stores import Put, StoreRefused, StoreUnavailable, Update
from django_lockstep.stores.dynamodb.client import Client
from django_lockstep.stores.dynamodb.store import DynamoStore
from django_lockstep.stores.dynamodb.values import decode, encode
from django_lockstep.stores.terms import Grant, Holder, claim
from tests.django_lockstep.stores.test_lease_verbs import acquire, holder_in

Fault = Callable[[Callable[[], Any]], Any]
"""Sends one request, or does not, and what becomes of its answer."""


class Faulty:
    """A client of boto3 whose first requests meet these faults."""

    def __init__(self, raw: Any, *faults: Fault) -> None:
        self._raw = raw
        self.faults = list(faults)
        self.meta = raw.meta

    def __getattr__(self, name: str) -> Any:
        def send(**request: Any) -> Any:
            def real() -> Any:
                return getattr(self._raw, name)(**request)

            return self.faults.pop(0)(real) if self.faults else real()

        return send


def answer_lost(real: Callable[[], Any]) -> Any:
    from botocore.exceptions import ClientError, ReadTimeoutError

    with suppress(ClientError):
        real()
    raise ReadTimeoutError(endpoint_url="lost")


def not_sent(real: Callable[[], Any]) -> Any:
    from botocore.exceptions import ConnectTimeoutError

    raise ConnectTimeoutError(endpoint_url="lost")


def failing(code: str, status: int = 400, **response: Any) -> Fault:
    def fail(real: Callable[[], Any]) -> Any:
        from botocore.exceptions import ClientError

        error = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}, **response}
        raise ClientError(error, "an operation")

    return fail


@pytest.fixture
def faults(dynamodb: DynamoStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the store's next requests meet these faults."""
    faulty = Faulty(dynamodb.client)
    monkeypatch.setattr(Client, "raw", faulty)
    monkeypatch.setattr("django_lockstep.stores.dynamodb.client._LONGEST_PAUSE", 0.0)
    return lambda *expected: faulty.faults.extend(expected)


# Answers that are lost.


def test_an_acquire_is_recognised(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    faults(answer_lost, answer_lost)
    assert acquire(dynamodb, owner="ada").token == 1
    assert holder_in(dynamodb).token == 1


def test_an_acquire_of_an_earlier_attempt_is_recognised(dynamodb: DynamoStore) -> None:
    request = claim("k", 60)
    first, again = dynamodb.acquire(request), dynamodb.acquire(request)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert again.token == first.token
    assert again.requested_at >= first.requested_at
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)


def test_a_renewal_and_a_release_are_recognised(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    token = acquire(dynamodb).token
    faults(answer_lost)
    assert dynamodb.renew("k", token, ttl=60)
    faults(answer_lost)
    assert dynamodb.release("k", token)
    assert dynamodb.get("k") is None
    assert not dynamodb.release("k", token)


def test_an_attempt_that_arrives_late_undoes_nothing(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    token = acquire(dynamodb).token
    late: list[Callable[[], Any]] = []

    def delayed(real: Callable[[], Any]) -> Any:
        late.append(real)
        return not_sent(real)

    for verb in (lambda: dynamodb.renew("k", token, ttl=60), lambda: dynamodb.note("k", token, data="1")):
        faults(delayed)
        assert verb()
    assert dynamodb.renew("k", token, ttl=600)
    assert dynamodb.note("k", token, data="2")
    for real in late:
        with pytest.raises(Exception, match="ConditionalCheckFailed"):
            real()
    holder = holder_in(dynamodb)
    assert holder.data == 2
    assert holder.remaining > 590


def test_a_token_of_another_process_renews(dynamodb_table: dict[str, Any], dynamodb: DynamoStore) -> None:
    token = acquire(dynamodb).token
    other = DynamoStore("other", dynamodb_table)
    assert other.renew("k", token, ttl=60)
    assert dynamodb.renew("k", token, ttl=60)
    assert not other.renew("k", token + 1, ttl=60)
    assert not other.renew("never held", 1, ttl=60)


@pytest.mark.parametrize("fault", [answer_lost, not_sent])
def test_writes_are_recognised_and_done_once(dynamodb: DynamoStore, faults: Callable[..., None], fault: Fault) -> None:
    faults(fault)
    version = dynamodb.put_if_absent("i", {"n": 1})
    assert version is not None
    faults(fault)
    assert dynamodb.update_if_unchanged("i", {"n": 2}, version=version) == version + 1
    faults(fault)
    assert dynamodb.put_if_unchanged("i", {"n": 3}, version=version + 1) == version + 2
    faults(fault)
    assert dynamodb.transact([Update("i", {"n": 4}, version + 2), Put("j", {})])
    item = dynamodb.read("i")
    assert item is not None
    assert (item.version, item.attributes) == (version + 3, {"n": 4})
    faults(fault)
    assert dynamodb.delete_if_unchanged("i", version=version + 3)


def test_a_write_that_another_has_overwritten_is_recognised(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    version = dynamodb.put_if_absent("i", {})
    assert version is not None

    def overwritten(real: Callable[[], Any]) -> Any:
        real()
        assert dynamodb.update_if_unchanged("i", {"by": "another"}, version=version + 1)
        return answer_lost(real)

    faults(overwritten)
    assert dynamodb.update_if_unchanged("i", {"by": "us"}, version=version) == version + 1


# Servers that refuse.


@pytest.mark.parametrize(
    "fault",
    [
        failing("ProvisionedThroughputExceededException"),
        failing("ThrottlingException"),
        failing("TransactionConflictException"),
        failing("InternalServerError", 500),
        failing("TransactionInProgressException"),
        failing(
            "TransactionCanceledException", CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict"}]
        ),
    ],
)
def test_what_may_pass_is_tried_again(dynamodb: DynamoStore, faults: Callable[..., None], fault: Fault) -> None:
    faults(fault, fault)
    assert acquire(dynamodb).token == 1
    faults(fault, fault)
    assert dynamodb.transact([Put("i", {})])


def test_a_store_without_an_answer_is_an_operational_error(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    faults(*[not_sent] * 1000)
    with pytest.raises(StoreUnavailable, match="did not answer within 0.0 s") as error:
        dynamodb.renew("k", 1, ttl=60, timeout=0.01)
    assert isinstance(error.value, OperationalError)
    again = pickle.loads(pickle.dumps(error.value))  # noqa: S301 - our own
    assert (str(again), again.store, again.code) == (str(error.value), "tested", "ConnectTimeoutError")


def test_a_missing_table_is_named(dynamodb_options: dict[str, Any]) -> None:
    store = DynamoStore("other", {**dynamodb_options, "TABLE": "missing"})
    with pytest.raises(StoreRefused, match="create_stores") as error:
        store.get("k")
    assert error.value.code == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"TABLE": "t", "ENDPOINT_URL": "http://127.0.0.1:9"}, 69, "The store cannot be reached"),
        ({"TABLE": "t", "ENDPOINT_URL": "no address"}, 2, "cannot make a client"),
        ({"TABEL": "t"}, 2, "TABEL"),
    ],
)
def test_run_exclusive_without_a_store(
    settings: Settings, dynamodb_url: str, options: dict[str, Any], code: int, text: str
) -> None:
    settings.LOCKSTEP_STORES = {"tested": options}
    with pytest.raises(CommandError, match=text) as refusal:
        call_command("run_exclusive", "k", "--ttl", "0.1", "--", "true", store="tested")
    assert refusal.value.returncode == code


# Clocks.


def test_observed_leases_expire_after_a_ttl_without_a_sign_of_life(dynamodb: DynamoStore) -> None:
    token = acquire(dynamodb).token
    expire("k", store="tested")
    assert dynamodb.get("k") is None
    assert dynamodb.renew("k", token, ttl=60)
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)
    expire("k", store="tested")
    assert acquire(dynamodb).token == token + 1


def test_a_sign_of_life_at_the_last_moment_keeps_it(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    token = acquire(dynamodb).token
    expire("k", store="tested")

    def renewed(real: Callable[[], Any]) -> Any:
        assert dynamodb.renew("k", token, ttl=60)
        return real()

    faults(renewed)
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)
    assert dynamodb.renew("k", token, ttl=60)


@pytest.mark.parametrize("skew", [-(10**6), 10**6])
def test_observers_do_not_use_the_wall_clock(dynamodb: DynamoStore, monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    acquire(dynamodb)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)
    expire("k", store="tested")
    assert acquire(dynamodb).token == 2


def age(store: DynamoStore, seconds: int) -> None:
    """Let the holder's clock have said that the lease expired so long ago."""
    store.client.update_item(
        TableName=store.table,
        Key={"pk": {"S": "lease#k"}},
        UpdateExpression="SET #until = :until",
        ExpressionAttributeNames={"#until": "until"},
        ExpressionAttributeValues={":until": encode(Decimal(f"{time.time() - seconds:.3f}"))},
    )


def test_signed_requests_take_a_dead_lease_at_once(dynamodb: DynamoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire(dynamodb)
    age(dynamodb, 10 * 365 * 86400)
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)
    monkeypatch.setattr(Client, "is_signed", True)
    assert acquire(dynamodb).token == 2
    age(dynamodb, 1800)
    assert isinstance(dynamodb.acquire(claim("k", 60)), Holder)


# Guards, items and tables.


def test_a_guard_is_a_condition_of_ones_own_transaction(dynamodb: DynamoStore) -> None:
    with lease("k", 60, store="tested") as handle:
        condition = handle.guard()
        assert condition is not None
        put = {"Put": {"TableName": dynamodb.table, "Item": {"pk": {"S": "mine"}}}}
        dynamodb.client.transact_write_items(TransactItems=[put, condition])
    with pytest.raises(dynamodb.client.exceptions.TransactionCanceledException):
        dynamodb.client.transact_write_items(TransactItems=[put, condition])


@pytest.mark.django_db(transaction=True)
def test_a_lease_of_another_kind_of_store_guards_nothing(dynamodb: DynamoStore) -> None:
    with (
        lease("k", 60, store="postgresql") as here,
        transaction.atomic(),
        pytest.raises(ValueError, match="is on database 'default'"),
    ):
        dynamodb.transact([Put("i", {})], guards=[here])
    assert dynamodb.read("i") is None


def test_a_lease_guards_another_store_of_the_same_server_alone(
    dynamodb: DynamoStore, dynamodb_table: dict[str, Any], settings: Settings
) -> None:
    there = {**dynamodb_table, "ENDPOINT_URL": "http://127.0.0.1:9"}
    settings.LOCKSTEP_STORES = {"tested": dynamodb_table, "beside": dynamodb_table, "there": there}
    with lease("k", 60, store="tested") as handle:
        assert DynamoStore.named("beside").transact([Put("i", {})], guards=[handle])
        with pytest.raises(ValueError, match="is in store 'tested', and guards no writes in 'there'"):
            DynamoStore.named("there").transact([Put("i", {})], guards=[handle])


def test_leases_and_items_of_one_key_are_apart(dynamodb: DynamoStore) -> None:
    assert dynamodb.put_if_absent("k", {"n": 1})
    acquire(dynamodb)
    assert [holder.key for holder in dynamodb.list()] == ["k"]
    item = dynamodb.client.get_item(TableName=dynamodb.table, Key={"pk": {"S": "item#k"}})["Item"]
    assert decode(item["n"]) == 1


def test_data_that_is_too_large_is_an_error_before_any_call(dynamodb: DynamoStore, faults: Callable[..., None]) -> None:
    handle = acquire_from(dynamodb, claim("k", 60), wait=0)
    assert isinstance(handle, LeaseHandle)
    faults(failing("none must be sent"))
    with pytest.raises(ValueError, match="data must not be larger than 401408 bytes"):
        handle.note("x" * 410_000)
    with pytest.raises(ValueError, match="data must not be larger"):
        dynamodb.acquire(claim("l", 60, data="x" * 410_000))
