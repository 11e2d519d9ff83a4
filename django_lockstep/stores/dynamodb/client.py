"""Calls to DynamoDB: one at a time is retried here, within the caller's time, and its errors are translated."""

from __future__ import annotations

import functools
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.stores.dynamodb.values import NEEDS_BOTO3
from django_lockstep.stores.errors import StoreRefused, StoreUnavailable, TokenReused
from django_lockstep.stores.protocol import CALL_TIMEOUT

_FIRST_PAUSE, _LONGEST_PAUSE = 0.025, 2.0
"""Bounds of the pauses between two attempts: any time up to a limit that doubles ("full jitter"), because callers that
were throttled together must not come back together."""

_NOT_DONE = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
    }
)
"""Errors after which nothing was written, and which another attempt may cure."""
_IN_PROGRESS = "TransactionInProgressException"


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoOptions:
    """The options of one store in ``LOCKSTEP_STORES``, in lower case."""

    table: str
    region: str | None = None
    """None: as boto3 finds it."""
    endpoint_url: str | None = None
    """None: AWS's own. Credentials are always those that boto3 finds."""
    timeout: Duration = 5
    """For how long one request may wait for its answer, before it is sent again."""


def parse_options(options: Mapping[str, Any]) -> DynamoOptions:
    """Return the options; raise ``TypeError`` or ``ValueError`` that names the option and the rule."""
    names = {name.upper() for name in DynamoOptions.__dataclass_fields__}
    if unknown := set(options) - names:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; a DynamoDB store has {', '.join(sorted(names))}")
    if not options.get("TABLE"):
        raise ValueError(f"TABLE must be the name of a table, not {options.get('TABLE')!r}")
    for name in ("TABLE", "REGION", "ENDPOINT_URL"):
        if not isinstance(options.get(name), str | None):
            raise TypeError(f"{name} must be a string, not {options[name]!r}")
    parsed = DynamoOptions(**{name.lower(): value for name, value in options.items()})
    seconds(parsed.timeout, name="TIMEOUT")
    return parsed


class ConditionFailed(Exception):
    """The condition of a write does not hold: ``item`` is the item as it is, None if there is none."""

    def __init__(self, item: dict[str, Any] | None) -> None:
        super().__init__("The condition of a write does not hold")
        self.item = item


class TransactionCancelled(Exception):
    """A transaction was not written: ``reasons`` are the server's codes, one for each of its parts."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("A transaction was not written")
        self.reasons = reasons


class Client:
    """boto3's low-level client for one store, made when it is first needed, once in each process."""

    def __init__(self, name: str, options: DynamoOptions) -> None:
        self._name = name
        self._options = options

    def call(self, operation: str, *, timeout: float, **arguments: Any) -> dict[str, Any]:
        """Return the answer; retry for ``timeout`` seconds what throttling, conflicts and lost answers made fail.

        Raises `ConditionFailed`, `TransactionCancelled`, `StoreUnavailable`, `StoreRefused` and `TokenReused`.
        """
        send: Callable[..., dict[str, Any]] = getattr(self.raw, operation)
        from botocore.exceptions import BotoCoreError, ClientError

        until = time.monotonic() + timeout
        for number in itertools.count():
            try:
                return send(**arguments)
            except (BotoCoreError, ClientError) as error:
                failure = _Failure(error)
                if not failure.may_pass:
                    raise failure.translated(self._name) from error
                pause = random.uniform(0, min(_FIRST_PAUSE * 2**number, _LONGEST_PAUSE))  # noqa: S311 - jitter
                if time.monotonic() + pause >= until:
                    message = f"Store {self._name!r} did not answer within {timeout:.1f} s: {error}"
                    raise StoreUnavailable(message, store=self._name, code=failure.code) from error
                time.sleep(pause)
        raise AssertionError("the loop ends with an answer or an error")

    def read(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Return the item with this key of the table, as the last write left it; None if there is none."""
        request = {"TableName": self._options.table, "Key": key, "ConsistentRead": True}
        return self.call("get_item", timeout=CALL_TIMEOUT, **request).get("Item")

    def scan(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield what has a key that begins so, as the last writes left it; reads the whole table, page by page."""
        request: dict[str, Any] = {
            "TableName": self._options.table,
            "ConsistentRead": True,
            "FilterExpression": "begins_with(pk, :prefix)",
            "ExpressionAttributeValues": {":prefix": {"S": prefix}},
            **arguments,
        }
        while True:
            page = self.call("scan", timeout=CALL_TIMEOUT, **request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    @property
    def raw(self) -> Any:
        """boto3's client, for requests of one's own."""
        # By process: sockets that a fork has copied must not be used by both.
        return _made(os.getpid(), self._options)

    @property
    def place(self) -> tuple[str, str]:
        """The server's address and its region."""
        return self.raw.meta.endpoint_url, self.raw.meta.region_name

    @property
    def is_signed(self) -> bool:
        """Whether the server is AWS, which refuses requests whose signature is too old or too new."""
        return ".amazonaws.com" in self.place[0]


@functools.lru_cache(maxsize=32)
def _made(pid: int, options: DynamoOptions) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise ImproperlyConfigured(NEEDS_BOTO3) from error
    limit = seconds(options.timeout, name="TIMEOUT")
    # boto3's own retries are off: they do not end with the caller's time.
    config = Config(connect_timeout=limit, read_timeout=limit, retries={"total_max_attempts": 1})
    # A session of its own: the default one must not be used by several threads at once.
    try:
        return boto3.session.Session().client(
            "dynamodb", region_name=options.region, endpoint_url=options.endpoint_url, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise ImproperlyConfigured(f"boto3 cannot make a client for table {options.table!r}: {error}") from error


class _Failure:
    """An error of botocore, sorted by what may be done about it."""

    def __init__(self, error: Exception) -> None:
        from botocore import exceptions

        self._error = error
        response: dict[str, Any] = error.response if isinstance(error, exceptions.ClientError) else {}
        self._item = response.get("Item")
        self.code: str = response.get("Error", {}).get("Code", type(error).__name__)
        self.reasons: list[str] = [reason.get("Code", "None") for reason in response.get("CancellationReasons", [])]
        self._is_lost = isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError)
        self._is_broken = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may succeed."""
        codes = {*self.reasons} - {"None"}
        passing = bool(codes) and codes <= _NOT_DONE
        return passing or self._is_lost or self._is_broken or self.code in _NOT_DONE or self.code == _IN_PROGRESS

    def translated(self, store: str) -> Exception:
        """Return the error to raise."""
        if self.code == "ConditionalCheckFailedException":
            return ConditionFailed(self._item)
        if self.reasons:
            return TransactionCancelled(self.reasons)
        if self.code == "IdempotentParameterMismatchException":
            return TokenReused(store=store, code=self.code)
        hint = "; manage.py create_stores makes the table" if self.code == "ResourceNotFoundException" else ""
        return StoreRefused(f"Store {store!r} refused a request: {self._error}{hint}", store=store, code=self.code)
