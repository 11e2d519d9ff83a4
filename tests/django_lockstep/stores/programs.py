"""Programs that use a store, for the tests to stop and to let contend.

``python -m tests.django_lockstep.stores.programs NAME OPTIONS ARGUMENT...``: the options of a store as JSON; each
answer is one line of JSON.
"""

import json
import sys
import time
from typing import Any

import django


def tell(**answer: object) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201


def contender(rounds: str) -> None:
    """Take the lease, count up under its guard, release it, again and again; tell when it was held."""
    from django_lockstep.leases import lease
    from django_lockstep.stores import Update, get_store

    store, held = get_store("tested"), []
    for _ in range(int(rounds)):
        with lease("k", 30, wait=60, store="tested") as handle:
            begun = time.monotonic()
            item = store.read("counter")
            assert item is not None
            change = Update("counter", {"n": item.attributes["n"] + 1}, item.version)
            assert store.transact([change], guards=[handle])
            held.append((begun, time.monotonic(), handle.token))
    tell(held=held)


def optimist(rounds: str) -> None:
    """Count up without a lease, again until the version is the one that was read."""
    from django_lockstep.stores import get_store

    store, done = get_store("tested"), 0
    while done < int(rounds):
        item = store.read("counter")
        assert item is not None
        done += bool(store.update_if_unchanged("counter", {"n": item.attributes["n"] + 1}, version=item.version))
    tell(done=done)


def writer() -> None:
    """Hold the lease, and write under its guard when a line comes in."""
    from django_lockstep.leases import LeaseLost, lease
    from django_lockstep.stores import Put, get_store

    with lease("k", 30, store="tested") as handle:
        tell(token=handle.token)
        sys.stdin.readline()
        try:
            get_store("tested").transact([Put("written", {"by": "paused"})], guards=[handle])
        except LeaseLost:
            tell(lost=True)
        else:
            tell(lost=False)


def main(name: str, options: str, *arguments: str) -> None:
    django.setup()
    from django.conf import settings

    stores: dict[str, Any] = {"tested": json.loads(options)}
    settings.LOCKSTEP_STORES = stores
    globals()[name](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
