"""A program that writes under guard, for the tests to stop in the middle of it.

``python -m tests.django_lockstep.stores.programs OPTIONS TTL``: the options of a store as JSON; each answer is one line
of JSON.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import django
from django.conf import settings
from django.db import Error


def tell(**answer: object) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201


@dataclass
class Stopping:
    """A guard that, once taken, waits for a line: what it guards is not written yet."""

    handle: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def guard(self) -> Mapping[str, Any] | None:
        condition: Mapping[str, Any] | None = self.handle.guard()
        tell(token=self.handle.token)
        sys.stdin.readline()
        return condition


def main(options: str, ttl: str) -> None:
    """Hold the lease, and begin to write under its guard."""
    stores: dict[str, Any] = {"tested": json.loads(options)}
    settings.LOCKSTEP_STORES = stores
    django.setup()
    from django_lockstep.leases import LeaseLost, lease
    from django_lockstep.stores import DynamoStore, Put

    try:
        with lease("k", float(ttl), store="tested") as handle:
            DynamoStore.named("tested").transact([Put("written", {"by": "stopped"})], guards=[Stopping(handle)])
    except (LeaseLost, Error) as error:
        tell(failed=type(error).__name__)
    else:
        tell(failed=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
