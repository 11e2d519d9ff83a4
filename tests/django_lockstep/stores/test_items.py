"""Conditional writes on DynamoDB."""

import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.checks import Tags, run_checks
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.handles import acquire_from
from django_lockstep.leases.testing import expire
from django_lockstep.stores import Delete, DynamoStore, Put, TokenReused, Update
from django_lockstep.stores.checks import check_stores, check_tables
from django_lockstep.stores.conf import get_store
from django_lockstep.stores.terms import claim
from tests.support.sessions import Session


@pytest.fixture
def store(dynamodb: DynamoStore) -> DynamoStore:
    return dynamodb


@pytest.fixture
def token() -> str:
    """A token of its own: the server remembers those of other tests."""
    return str(uuid.uuid4())


def put(store: DynamoStore, on: str = "i", /, **attributes: Any) -> int:
    version = store.put_if_absent(on, attributes)
    assert version is not None
    return version


def attributes_of(store: DynamoStore, key: str = "i") -> dict[str, Any] | None:
    item = store.read(key)
    return item.attributes if item else None


def hold(store: DynamoStore) -> LeaseHandle:
    handle = acquire_from(store, claim("k", 60), wait=0)
    assert isinstance(handle, LeaseHandle)
    return handle


def test_put_if_absent(store: DynamoStore) -> None:
    assert store.read("i") is None
    version = put(store, balance=Decimal("1.5"))
    assert store.put_if_absent("i", {"balance": 2}) is None
    item = store.read("i")
    assert item is not None
    assert (item.key, item.version, item.attributes) == ("i", version, {"balance": Decimal("1.5")})


def test_values_come_back(store: DynamoStore) -> None:
    values: dict[str, Any] = {
        "none": None,
        "true": True,
        "text": "ä",
        "empty": "",
        "integer": 7,
        "digits": Decimal("1234567890123456789012345678.0123456789"),
        "list": [1, ["a", {}], False],
        "map": {"name": "reserved", "status": {"size": 1}},
        "size": "a reserved word",
    }
    put(store, **values)
    assert attributes_of(store) == values


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else "bottom"


@pytest.mark.parametrize(
    "value",
    [
        *(Decimal(sign + text) for sign in ("", "-") for text in ("9" * 38 + "E+88", "1E-130", "1E+38", "1E+125")),
        Decimal("1.50"),
        Decimal("-0"),
        -(10**37),
        nested(31),
    ],
    ids=str,
)
def test_extreme_values_come_back(store: DynamoStore, value: Any) -> None:
    put(store, value=value)
    assert attributes_of(store) == {"value": value}


def test_put_if_unchanged_replaces_the_whole_item(store: DynamoStore) -> None:
    first = put(store, a=1, b=2)
    second = store.put_if_unchanged("i", {"c": 3}, version=first)
    assert second == first + 1
    assert store.put_if_unchanged("i", {"d": 4}, version=first) is None
    assert attributes_of(store) == {"c": 3}


def test_put_if_unchanged_of_an_item_that_was_absent(store: DynamoStore) -> None:
    assert store.put_if_unchanged("i", {}, version=1) is None
    assert store.put_if_unchanged("i", {}, version=None) is not None
    assert store.put_if_unchanged("i", {"late": 1}, version=None) is None
    assert attributes_of(store) == {}


def test_update_if_unchanged_writes_some_attributes(store: DynamoStore) -> None:
    first = put(store, a=1, b=2, c=3)
    second = store.update_if_unchanged("i", {"a": 10, "name": "n"}, version=first, remove=["b", "never"])
    assert second == first + 1
    assert store.update_if_unchanged("i", {"a": 0}, version=first) is None
    assert attributes_of(store) == {"a": 10, "name": "n", "c": 3}
    assert store.update_if_unchanged("absent", {"a": 0}, version=1) is None


def test_delete_if_unchanged(store: DynamoStore) -> None:
    version = put(store)
    assert not store.delete_if_unchanged("i", version=version + 1)
    assert store.delete_if_unchanged("i", version=version)
    assert not store.delete_if_unchanged("i", version=version)
    assert store.read("i") is None


def test_a_deleted_items_version_does_not_come_back(store: DynamoStore) -> None:
    version = put(store)
    assert store.delete_if_unchanged("i", version=version)
    put(store)
    assert store.update_if_unchanged("i", {"stale": True}, version=version) is None


def test_of_many_writers_of_one_version_one_writes(store: DynamoStore, open_session: Callable[[], Session]) -> None:
    version = put(store)
    sessions = [open_session() for _ in range(8)]
    answers = [
        session.start(store.update_if_unchanged, "i", {"by": number}, version=version)
        for number, session in enumerate(sessions)
    ]
    written = [number for number, answer in enumerate(answers) if answer.result(20)]
    assert len(written) == 1
    assert attributes_of(store) == {"by": written[0]}


def test_a_transaction_is_written_whole(store: DynamoStore) -> None:
    first, second, third = put(store, "a", n=1), put(store, "b", n=2), put(store, "c", n=3)
    outcome = store.transact(
        [Put("d", {"n": 4}), Update("a", {"n": 10}, first), Delete("b", second), Update("c", {"n": 30}, third)]
    )
    assert outcome
    assert outcome.versions[1:] == (first + 1, None, third + 1)
    assert [attributes_of(store, key) for key in "abcd"] == [{"n": 10}, None, {"n": 30}, {"n": 4}]
    item = store.read("d")
    assert item is not None
    assert item.version == outcome.versions[0]


def test_a_transaction_with_a_condition_that_fails_writes_nothing(store: DynamoStore) -> None:
    first, second = put(store, "a", n=1), put(store, "b", n=2)
    stale = Update("b", {}, second + 1)
    outcome = store.transact([Update("a", {"n": 10}, first), stale, Put("a2", {}), Delete("c", 1)])
    assert not outcome
    assert outcome.refused == (1, 3)
    assert outcome.versions == ()
    assert [attributes_of(store, key) for key in ("a", "b", "a2")] == [{"n": 1}, {"n": 2}, None]


def test_a_transaction_is_done_once_for_a_token(store: DynamoStore, token: str) -> None:
    writes = [Put("i", {"n": 1})]
    first = store.transact(writes, token=token)
    assert first
    again = store.transact(writes, token=token)
    assert again
    assert again == first
    with pytest.raises(TokenReused):
        store.transact([Put("i", {"n": 2})], token=token)
    assert attributes_of(store) == {"n": 1}


def test_a_refused_transaction_leaves_its_token_free(store: DynamoStore, token: str) -> None:
    version = put(store)
    assert not store.transact([Put("i", {}), Put("j", {})], token=token)
    assert store.delete_if_unchanged("i", version=version)
    assert store.transact([Put("i", {}), Put("j", {})], token=token)


def test_transactions_of_one_token_at_once_are_done_once(
    store: DynamoStore, token: str, open_session: Callable[[], Session]
) -> None:
    writes = [Put("i", {"n": 1})]
    answers = [open_session().start(store.transact, writes, token=token) for _ in range(8)]
    assert len({answer.result(20) for answer in answers}) == 1
    assert attributes_of(store) == {"n": 1}


def test_crossing_transactions_both_end(store: DynamoStore, open_session: Callable[[], Session]) -> None:
    a, b = put(store, "a"), put(store, "b")
    first = [Update("a", {"by": 1}, a), Update("b", {"by": 1}, b)]
    second = [Update("b", {"by": 2}, b), Update("a", {"by": 2}, a)]
    answers = [open_session().start(store.transact, writes) for writes in (first, second)]
    assert [bool(answer.result(20)) for answer in answers].count(True) == 1
    assert attributes_of(store, "a") == attributes_of(store, "b")


def test_a_guarded_transaction_is_written_while_the_lease_is_held(store: DynamoStore) -> None:
    handle = hold(store)
    assert store.transact([Put("i", {})], guards=[handle])
    handle.refresh()
    assert not store.transact([Put("i", {})], guards=[handle])
    assert handle.release()


@pytest.mark.parametrize("released", [False, True])
def test_a_late_holder_writes_nothing(store: DynamoStore, released: bool) -> None:
    late = hold(store)
    if released:
        assert store.release("k", late.token)
    else:
        expire("k", store="tested")
    successor = hold(store)
    with pytest.raises(LeaseLost, match="another holder took it|does not hold it"):
        store.transact([Put("i", {"by": "late"})], guards=[late])
    assert store.read("i") is None
    assert store.transact([Put("i", {"by": "successor"})], guards=[successor])


@pytest.mark.parametrize(
    ("attributes", "error", "text"),
    [
        ({"money": 1.5}, TypeError, "attribute 'money': Float types are not supported. Use Decimal types instead"),
        ({"a": {"b": [float("nan")]}}, TypeError, "attribute 'a': Float types are not supported"),
        ({"n": Decimal("NaN")}, TypeError, "attribute 'n': Infinity and NaN not supported"),
        ({"n": Decimal("-Infinity")}, ValueError, "attribute 'n': numbers must be finite"),
        ({"n": 10**38 + 1}, ValueError, "attribute 'n': numbers have at most 38 digits"),
        ({"n": Decimal("1e126")}, ValueError, r"between 1E-130 and 9.99E\+125, not 1E\+126"),
        ({"deep": nested(32)}, ValueError, "more than 31 levels deep"),
        ({"o": object()}, TypeError, "attribute 'o': Unsupported type"),
        ({"b": b"bytes"}, TypeError, "must be None, a bool, .* not bytes or a set"),
        ({"t": "\ud800"}, ValueError, "attribute 't': .* surrogates not allowed"),
        ({"": 1}, ValueError, "1 to 255 characters"),
        ({"m": {1: 1}}, ValueError, "1 to 255 characters"),
        ({"version": 1}, ValueError, "'version' is the store's own"),
        ({"big": "x" * 410_000}, ValueError, "larger than 409600 bytes"),
    ],
)
def test_values_that_cannot_be_stored(attributes: Any, error: type[Exception], text: str) -> None:
    pytest.importorskip("boto3")
    with pytest.raises(error, match=text):
        Put("i", attributes)
    with pytest.raises(error, match=text):
        Update("i", attributes, 1)


def test_wrong_keys_versions_and_transactions(store: DynamoStore) -> None:
    with pytest.raises(ValueError, match="key must have 1 to 255 characters"):
        store.put_if_absent("", {})
    for version in (0, True, 1.0):
        with pytest.raises(ValueError, match="version must be a positive integer"):
            store.delete_if_unchanged("i", version=version)  # type: ignore[arg-type]
    for verb in (store.put_if_absent, partial(store.update_if_unchanged, version=1)):
        with pytest.raises(TypeError, match="'money': Float types"):
            verb("i", {"money": 1.5})
    with pytest.raises(ValueError, match="both changed and removed"):
        Update("i", {"a": 1}, 1, remove=["a"])
    with pytest.raises(ValueError, match="1 to 100 writes"):
        store.transact([])
    with pytest.raises(ValueError, match="one write for a key"):
        store.transact([Put("i", {}), Delete("i", 1)])
    with pytest.raises(ValueError, match="token must be"):
        store.transact([Put("i", {})], token="x" * 37)


# The table of a store on DynamoDB: its checks, and ``create_stores``


def test_nothing_is_asked_without_a_database_check(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": {**dynamodb_options, "ENDPOINT_URL": "http://127.0.0.1:9", "TIMEOUT": 0.1}}
    assert run_checks(tags=[Tags.database], databases=[]) == []
    assert check_stores(None) == []


def test_a_missing_table_and_another_key(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": dynamodb_options}
    (missing,) = check_tables(None, databases=["default"])
    assert (missing.id, missing.obj) == ("lockstep.E052", "tested")
    assert "does not exist" in missing.msg
    store = get_store("tested")
    assert isinstance(store, DynamoStore)
    store.client.create_table(
        TableName=store.table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
    )
    (other,) = check_tables(None, databases=["default"])
    assert "another key than the string 'pk' alone" in other.msg
    with pytest.raises(CommandError, match="another key"):
        call_command("create_stores", "tested", stdout=StringIO())


def test_a_server_that_cannot_be_asked_is_a_warning(
    dynamodb_options: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_lockstep.stores.dynamodb.store.CALL_TIMEOUT", 0.01)
    settings.LOCKSTEP_STORES = {"tested": {**dynamodb_options, "ENDPOINT_URL": "http://127.0.0.1:9", "TIMEOUT": 0.1}}
    (message,) = check_tables(None, databases=["default"])
    assert message.id == "lockstep.W050"


def test_create_stores(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": dynamodb_options}
    out = StringIO()
    call_command("create_stores", stdout=out)
    call_command("create_stores", "tested", stdout=out)
    first, second = out.getvalue().splitlines()
    assert first.endswith("of store 'tested': created.")
    assert second.endswith("of store 'tested': exists.")
    assert check_tables(None, databases=["default"]) == []
