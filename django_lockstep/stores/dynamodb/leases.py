"""Leases on DynamoDB: one item a key, marked as released and never deleted, so that its tokens only grow."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django_lockstep.stores.dynamodb.client import Client, ConditionFailed, parse_options
from django_lockstep.stores.dynamodb.sightings import Sightings
from django_lockstep.stores.dynamodb.values import LARGEST, decode, encode
from django_lockstep.stores.errors import StoreError, StoreUnavailable
from django_lockstep.stores.protocol import CALL_TIMEOUT, lease_waits, pauses, timeout_of
from django_lockstep.stores.terms import Claim, Grant, Holder, UniqueOwner, valid_key, valid_token

logger = logging.getLogger("lockstep.leases")

PREFIX = "lease#"
"""Before the key of a lease in the table's key, so that leases and items have names of their own."""

_SHORTEST_PAUSE = 0.02
"""Seconds between two attempts of a waiter, each of which is billed as a write."""
_SIGNED_SKEW = 3600.0
"""AWS refuses a request that was signed more than fifteen minutes before or after its own time. So the clocks of two
machines that reach it differ by at most half an hour, and what has expired an hour ago by ours has expired."""

_LARGEST_DATA = LARGEST - 8192
"""Bytes of a lease's data; the rest of an item's is for its key, its owner and what else it has."""

_NAMES = ("data", "owner", "record", "released", "since", "token", "ttl", "until")
_HELD = "#token = :token AND #released = :false"
_FREE = "#ttl = :zero"


class DynamoLeases:
    """The verbs of leases. DynamoDB has no clock in its conditions.

    So a lease has expired once this process has seen the same record of it for its whole ttl, by its own monotonic
    clock. Every acquire, renewal and release writes a new record. Right however the clocks of the machines differ; a
    process that sees a dead holder's lease for the first time waits for a ttl.
    """

    is_isolated = False

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        parsed = parse_options(options)
        self.table = parsed.table
        self._client = Client(name, parsed)
        self.sightings = Sightings()

    def acquire(self, claim: Claim, *, wait: float = 0.0, yields: bool = False) -> Grant | Holder | None:
        """Take the lease, or return its holder after ``wait`` seconds, which pass with polls."""
        until = time.monotonic() + (wait if lease_waits() else 0.0)
        for pause in pauses(until, shortest=_SHORTEST_PAUSE):
            answer = None
            try:
                answer = self._attempt(claim)
            except StoreUnavailable as error:
                logger.warning("A wait for a lease goes on, but store %r cannot be reached: %s", self.name, error)
            if isinstance(answer, Grant):
                return answer
            expires_in = answer.remaining + _SHORTEST_PAUSE if isinstance(answer, Holder) else pause
            time.sleep(min(pause, expires_in))
        return self._attempt(claim)

    def _attempt(self, claim: Claim) -> Grant | Holder | None:
        # Taken before the request is sent: the lease may have started at any time after.
        requested_at, record = time.monotonic(), uuid.uuid4().hex
        try:
            answer = self._send(claim.key, timeout_of(claim.ttl), **self._acquisition(claim, record))
        except ConditionFailed as refusal:
            item = refusal.item
            if item is None:
                return None
            if item["record"]["S"] == record:
                # An earlier attempt succeeded, and its answer was lost.
                return _grant(item, requested_at)
            return self._refused(claim, item)
        return _grant(answer["Attributes"], requested_at)

    def _acquisition(self, claim: Claim, record: str) -> dict[str, Any]:
        values = {
            **_times(claim.ttl),
            ":record": record,
            ":owner": claim.owner,
            ":since": _now(),
            ":zero": 0,
            ":one": 1,
            ":false": False,
            ":data": _valid_data("null" if claim.data is None else claim.data),
        }
        free = ["attribute_not_exists(pk)", _FREE]
        if seen := self.sightings.expired(claim.key):
            # The very record that was seen: any sign of life since then has replaced it.
            values[":seen"] = seen
            free.append("#record = :seen")
        if self._client.is_signed:
            values[":limit"] = _now() - _decimal(_SIGNED_SKEW)
            free.append("#until < :limit")
        data = "if_not_exists(#data, :data)" if claim.data is None else ":data"
        return {
            "UpdateExpression": "SET #token = if_not_exists(#token, :zero) + :one, #owner = :owner, #since = :since, "
            f"#ttl = :ttl, #until = :until, #record = :record, #released = :false, #data = {data}",
            "ConditionExpression": " OR ".join(free),
            "ExpressionAttributeValues": values,
        }

    def _refused(self, claim: Claim, item: dict[str, Any]) -> Grant | Holder:
        holder = self._holder(claim.key, item)
        if isinstance(claim.owner, UniqueOwner) and holder.owner == claim.owner and not holder.released:
            # An earlier attempt that had failed for its time has taken the lease in this name. Since when, a renewal
            # makes known.
            requested_at = time.monotonic()
            if self.renew(claim.key, holder.token, ttl=claim.ttl, timeout=timeout_of(claim.ttl)):
                return _grant(item, requested_at)
        return holder

    def renew(self, key: str, token: int, *, ttl: float, timeout: float = CALL_TIMEOUT) -> bool:
        # Never earlier than the record that is replaced promises: another thread's renewal may be longer.
        return self._change(
            key, token, "#ttl = :ttl, #until = :until", lambda left: _times(max(ttl, left)), timeout=timeout
        )

    def note(self, key: str, token: int, *, data: str, timeout: float = CALL_TIMEOUT) -> bool:
        values = {":data": _valid_data(data)}
        return self._change(key, token, "#data = :data", lambda left: values, timeout=timeout)

    def release(
        self, key: str, token: int, *, at_least: float = 0.0, held: float = 0.0, timeout: float = CALL_TIMEOUT
    ) -> bool:
        # Other processes watch a lease that is released but kept for the rest of its time, as if it were held.
        values = {**_times(max(0.0, at_least - held)), ":true": True}
        change = "#ttl = :ttl, #until = :until, #released = :true"
        return self._change(key, token, change, lambda left: values, timeout=timeout)

    def _change(
        self, key: str, token: int, change: str, values: Callable[[float], dict[str, Any]], *, timeout: float
    ) -> bool:
        """Change a held lease; False if the token no longer holds it.

        The condition names the record that is replaced. So an attempt that was given up, and that the server carries
        out late, after the change that followed it, does not undo that one. ``values`` is told for how many seconds
        that record still promises the lease.
        """
        until, record = time.monotonic() + timeout, uuid.uuid4().hex
        own = {":token": valid_token(token), ":false": False, ":record": record}
        while True:
            seen, left = self.sightings.current(key)
            try:
                self._send(
                    key,
                    until - time.monotonic(),
                    UpdateExpression=f"SET #record = :record, {change}",
                    ConditionExpression=f"{_HELD} AND #record = :seen",
                    ExpressionAttributeValues={**own, **values(left), ":seen": seen},
                )
            except ConditionFailed as refusal:
                item = refusal.item
                if item is None or int(item["token"]["N"]) != token:
                    return False
                if item["record"]["S"] == record:
                    # An earlier attempt succeeded, and its answer was lost.
                    return True
                if item["released"]["BOOL"]:
                    return False
                # Another thread of the holder was faster, or this process has not seen the record yet.
                self._remaining(key, item)
            else:
                return True

    def get(self, key: str) -> Holder | None:
        item = self._client.read(_key(key))
        return self._holder_or_none(key, item) if item else None

    def list(self) -> list[Holder]:
        """Return the holders of all leases that are not free; reads the whole table."""
        items = sorted(self._client.scan(PREFIX), key=lambda item: str(item["pk"]["S"]))
        holders = [self._holder_or_none(item["pk"]["S"].removeprefix(PREFIX), item) for item in items]
        return [holder for holder in holders if holder is not None]

    def guard(self, key: str, token: int, *, within: float | None = None) -> Mapping[str, Any]:
        """Return the ``ConditionCheck`` for a ``TransactWriteItems`` that must write only while the token holds.

        ``within`` has no meaning here: a condition holds nothing up.
        """
        return {
            "ConditionCheck": {
                "TableName": self.table,
                "Key": _key(key),
                "ConditionExpression": _HELD,
                "ExpressionAttributeNames": {"#token": "token", "#released": "released"},
                "ExpressionAttributeValues": {":token": encode(valid_token(token)), ":false": encode(False)},
            }
        }

    def abandon(self, key: str, owner: str) -> None:
        with suppress(StoreError):  # it expires by itself
            holder = self.get(key)
            if holder is not None and holder.owner == owner:
                self.release(key, holder.token)

    def is_lost(self) -> bool:
        """Return True: this store raises an ``OperationalError`` for nothing else."""
        return True

    def close(self) -> None:
        """Do nothing: connections are pooled, and an idle one holds nothing up."""

    def _send(self, key: str, timeout: float, **request: Any) -> dict[str, Any]:
        values = request.pop("ExpressionAttributeValues")
        expressions = request["UpdateExpression"] + request["ConditionExpression"]
        answer = self._client.call(
            "update_item",
            timeout=timeout,
            TableName=self.table,
            Key=_key(key),
            # By placeholders, because half of these names are reserved words; the server refuses unused ones.
            ExpressionAttributeNames={f"#{name}": name for name in _NAMES if f"#{name}" in expressions},
            ExpressionAttributeValues={name: encode(value) for name, value in values.items() if name in expressions},
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **request,
        )
        self._remaining(key, answer["Attributes"])  # the new record is known from now on
        return answer

    def _holder_or_none(self, key: str, item: dict[str, Any]) -> Holder | None:
        holder = self._holder(key, item)
        return holder if holder.remaining > 0 else None

    def _holder(self, key: str, item: dict[str, Any]) -> Holder:
        """Return the holder, and watch its record from now on if it is a new one."""
        return Holder(
            key=key,
            owner=item["owner"]["S"],
            token=int(item["token"]["N"]),
            since=_since(item),
            remaining=self._remaining(key, item),
            data=json.loads(item["data"]["S"]),
            released=item["released"]["BOOL"],
        )

    def _remaining(self, key: str, item: dict[str, Any]) -> float:
        """Return after how many seconds this process may take the lease, if nothing is written until then."""
        ttl = float(decode(item["ttl"]))
        left = ttl - self.sightings.watch(key, item["record"]["S"], ttl=ttl) if ttl else 0.0
        if self._client.is_signed:
            left = min(left, float(decode(item["until"]) - _now()) + _SIGNED_SKEW)
        return max(0.0, left)


def _key(key: str) -> dict[str, Any]:
    return {"pk": encode(PREFIX + valid_key(key))}


def _times(ttl: float) -> dict[str, Any]:
    return {":ttl": _decimal(ttl), ":until": _now() + _decimal(ttl)}


def _grant(item: dict[str, Any], requested_at: float) -> Grant:
    return Grant(token=int(item["token"]["N"]), since=_since(item), requested_at=requested_at, data=item["data"]["S"])


def _since(item: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(float(decode(item["since"])), UTC)


def _now() -> Decimal:
    return _decimal(time.time())


def _decimal(number: float) -> Decimal:
    return Decimal(f"{number:.6f}")


def _valid_data(data: str) -> str:
    if (size := len(data.encode())) > _LARGEST_DATA:
        raise ValueError(f"data must not be larger than {_LARGEST_DATA} bytes as JSON, not {size}")
    return data
