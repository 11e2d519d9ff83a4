"""Leases and items on DynamoDB: nothing is lost or doubled under contention, and what acquire and release cost."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from benchmarks.leases import Contender, measure, pairs_table, worker_counts
from benchmarks.stores.contenders import CONTENDERS, OTHER, YARDSTICK
from benchmarks.stores.contention import LATE_EVERY, TTL, Counts, StoreOptions, contend
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from benchmarks.together import START
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.dynamodb import CREDENTIALS, PACKAGE, ServerMissingError, dynamodb_server

__all__ = ["SUITE"]

_SERVER_SECONDS = 60.0
"""Seconds that the server takes to start at most, once it is installed."""
_PAIRS_SECONDS = 5
"""Seconds that a measurement of pairs lasts at most: what a long run is for is the contention."""
CONTENTION = "contention on DynamoDB"
_SUMMARY = f"""\
In `contention`, each process holds one lease, counts up an item under its guard, releases it, and counts up another \
item by its version alone, again and again. The first process is late at first and then every {LATE_EVERY:.0f} \
seconds: it wants to write after its ttl. `lost` are the holds that then wrote nothing, because another process had \
taken over; `overlaps` are holds that began before the one before was certainly over. Increments that were reported as \
written must be as many as the items say. The other tables are pairs of acquire and release; `leases / it` is the rate \
of leases on DynamoDB by that of the contender. Who is refused polls: ours with growing pauses, the others every 5 ms. \
DynamoDB is {PACKAGE.replace("==", " ")} on this machine, which is one Python process: what is compared is the number \
of requests and the client, not AWS.\
"""


@contextmanager
def _stores() -> Iterator[dict[str, StoreOptions]]:
    """Provide the options of a store of each kind. Raises ``ImproperlyConfigured`` where there is no DynamoDB."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            url = stack.enter_context(dynamodb_server(Path(folder)))
        except ServerMissingError as error:
            raise ImproperlyConfigured(f"no DynamoDB server: {error}") from error
        os.environ.update(CREDENTIALS)  # inherited by the processes
        options = {"TABLE": "lockstep", "REGION": "us-east-1", "ENDPOINT_URL": url}
        DynamoStore.from_options("made", options).create()
        yield {"PostgreSQL": {"BACKEND": "postgresql"}, "DynamoDB": options}


def _kind(name: str) -> str:
    """Return which store the contender of this name is for."""
    return "PostgreSQL" if name.endswith("PostgreSQL") else "DynamoDB"


def _has_other() -> bool:
    return find_spec("python_dynamodb_lock") is not None


def _counts_table(counts: Mapping[str, Counts], workers: int) -> FigureTable:
    columns = [column.name for column in fields(Counts)]

    def shown(each: Counts, column: str) -> int | str:
        value: int = getattr(each, column)
        return ("no", "yes")[value] if isinstance(value, bool) else value

    return FigureTable(
        title=f"Contention of {workers} processes",
        columns=("store", "verdict", *(column.replace("_", " ") for column in columns)),
        rows=tuple(
            (name, "sound" if each.is_sound else "BROKEN", *(shown(each, column) for column in columns))
            for name, each in counts.items()
        ),
    )


@dataclass(frozen=True, slots=True)
class Stores:
    name: str = "stores"

    def names(self) -> tuple[str, ...]:
        """Return what can be selected."""
        return (CONTENTION, *CONTENDERS)

    def seconds(self, options: Options) -> float:
        """Return how long all rounds take at most."""
        pairs = options.rounds * sum(_PAIRS_SECONDS + START * n for n in worker_counts(options))
        contention = options.seconds + 2 * TTL + START * max(options.workers)
        return _SERVER_SECONDS + len(CONTENDERS) * pairs + contention

    def run(self, options: Options, *, say: Say) -> Section:
        """Let the processes contend on DynamoDB, then measure the contenders."""
        chosen = select_names(self.names(), options.only)
        with _stores() as stores:
            counts = {}
            if CONTENTION in chosen:
                counts["DynamoDB"] = contend(stores["DynamoDB"], workers=max(options.workers), seconds=options.seconds)
                say(f"stores: {CONTENTION}: {'sound' if counts['DynamoDB'].is_sound else 'BROKEN'}")
            rates = self._rates(chosen, options, stores, say=say)
        workers = max(options.workers)
        tables = [_counts_table(counts, workers)] if counts else []
        absent = {OTHER: "not installed"} if OTHER in chosen and not _has_other() else {}
        tables += [pairs_table(rates[n], workers=n, yardstick=YARDSTICK, absent=absent) for n in rates]
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(tables),
            data={
                "contention": {name: asdict(each) for name, each in counts.items()},
                "pairs": {str(n): each for n, each in rates.items()},
            },
            sound=all(each.is_sound for each in counts.values()),
        )

    def _rates(
        self, chosen: Sequence[str], options: Options, stores: Mapping[str, StoreOptions], *, say: Say
    ) -> dict[int, dict[str, list[float]]]:
        if not {*chosen} & {*CONTENDERS}:
            return {}
        # Ours on DynamoDB always takes part: all others are compared with it.
        contenders: dict[str, Contender] = {
            name: functools.partial(make, stores[_kind(name)])
            for name, make in CONTENDERS.items()
            if name in {YARDSTICK, *chosen} and (name != OTHER or _has_other())
        }
        rates = {}
        for workers in worker_counts(options):
            short = replace(options, seconds=min(options.seconds, _PAIRS_SECONDS))
            rates[workers] = measure(contenders, short, workers=workers)
            say(f"stores: {workers} done")
        return rates


SUITE = Stores()
