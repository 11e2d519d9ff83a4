"""Django's own idioms beside ours: the CPU time that a client spends on one call, in one process."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import median
from typing import Any

from django.db import connection, models, transaction

from accounts.engine import use_engine
from accounts.models import Account, Entry
from benchmarks.deposit.others import AccountTable, PlainAccount, PlainEntry, article
from benchmarks.deposit.rows import AMOUNT, OPENING, reset_accounts
from benchmarks.suite import FigureTable, Options, Say, Section, select_names
from django_lockstep.locking import lock_row

Call = Callable[[], object]
Make = Callable[[type[models.Model]], Call]
"""Makes the call for a model: `PlainAccount` is Django's alone, `Account` is ours; both have one table."""

LOADED = 10_000
"""How many instances are loaded at once."""
_SLICE = 0.1
"""Seconds that one of them runs before the next one's turn."""
_SUMMARY = f"""\
Microseconds of CPU time that the client spends on a call, medians of slices of {_SLICE:g} s; they take turns. Ratios \
are to Django in neighbouring slices: the median, the lowest and the highest. Both models have the same table, and the \
server its version guard. The time to send and to make the instance is in it, that of the server is not. `sent alone` \
has what Django sends, with its text ready, through Django's cursor: nothing that uses that cursor can take less.\
"""


def lock(model: type[models.Model]) -> Call:
    """Lock a row and read it."""

    def stock() -> None:
        with transaction.atomic():
            model._base_manager.select_for_update().get(pk=1)

    def ours() -> None:
        with transaction.atomic():
            lock_row(model, 1)

    return ours if model is Account else stock


def update(model: type[models.Model]) -> Call:
    """Compare the version and write."""
    # From the row's version on: each call writes one.
    versions = count(model._base_manager.values_list("version", flat=True).get(pk=1))

    def call() -> None:
        version = next(versions)
        rows = model._default_manager.filter(pk=1, version=version)
        if not rows.update(balance=OPENING, version=version + 1):
            raise AssertionError(f"another one wrote version {version}")

    return call


def save(model: type[models.Model]) -> Call:
    """Save an instance that was changed."""
    instance = model._base_manager.get(pk=1)
    limits = count(1)

    def call() -> None:
        instance.overdraft_limit = next(limits)  # type: ignore[attr-defined]
        instance.save()

    return call


def create(model: type[models.Model]) -> Call:
    """Create a row."""
    entries = Entry._base_manager if model is Account else PlainEntry._base_manager
    return partial(entries.create, account_id=1, amount=AMOUNT, balance_after=OPENING, version_after=1)


def deposit(model: type[models.Model], engine: str = "plain") -> Call:
    """Deposit money, with an entry."""

    def ours() -> None:
        with use_engine(engine):  # type: ignore[arg-type]
            Account.deposit(1, AMOUNT)

    return ours if model is Account else partial(article, 1)


class WholeAccount(AccountTable):
    """All of the account's columns, without our field and base class."""

    opening_balance = models.DecimalField(max_digits=14, decimal_places=2, null=True)
    entry_count = models.PositiveBigIntegerField()
    version = models.BigIntegerField()


def load(model: type[models.Model]) -> Call:
    """Load many instances."""
    whole = Account if model is Account else WholeAccount
    return lambda: list(whole._base_manager.all())


IDIOMS: Mapping[str, Make] = {
    "lock and read a row by key": lock,
    "filter(pk=, version=).update()": update,
    "save() of an instance": save,
    "create()": create,
    "deposit, and the article's lines": deposit,
    "deposit by the compiled engine": partial(deposit, engine="compiled"),
    f"load {LOADED:,} instances": load,
}


def sent_alone(call: Call) -> Call:
    """Return a call that only sends what this one sends, in a transaction if it does."""
    sent: list[tuple[str, Any, bool]] = []

    def note(execute: Callable[..., Any], text: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        sent.append((text, params, connection.in_atomic_block))
        return execute(text, params, many, context)

    with connection.execute_wrapper(note):
        call()

    def again() -> None:
        with transaction.atomic() if sent[0][2] else nullcontext():
            for text, params, _ in sent:
                with connection.cursor() as cursor:
                    cursor.execute(text, params)
                    if cursor.description:
                        cursor.fetchall()

    return again


def measure(make: Make, seconds: float) -> list[tuple[float, float, float]]:
    """Return the CPU seconds of a call for Django's model, for ours, and of what Django's sends, slice by slice."""
    slices: list[tuple[float, float, float]] = []
    reset_accounts(LOADED if make is load else 1)
    begun = time.perf_counter()
    while not slices or time.perf_counter() - begun < seconds:
        alone = _spent(sent_alone(make(PlainAccount)))
        if make is not load:
            reset_accounts(1)  # what was sent again has booked no money, but written entries
        # Made again for each slice: the other one has written the row in the meantime.
        stock, ours = (_spent(make(model)) for model in (PlainAccount, Account))
        slices.append((stock, ours, alone))
    return slices


def _spent(call: Call) -> float:
    call()  # connecting, compiling and preparing are not what is compared
    gc.collect()  # nor is what others have left
    calls, begun, cpu = 0, time.perf_counter(), time.process_time()
    while not calls or time.perf_counter() - begun < _SLICE:
        call()
        calls += 1
    return (time.process_time() - cpu) / calls


def memory(model: type[models.Model]) -> float:
    """Return the bytes of one instance."""
    tracemalloc.start()
    instances = load(model)()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(instances)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Idioms:
    """Django's idioms here and in stock Django, in neighbouring slices of time."""

    name: str = "idioms"

    def names(self) -> tuple[str, ...]:
        """Return the idioms."""
        return tuple(IDIOMS)

    def seconds(self, options: Options) -> float:
        """Return how long all of them take at most."""
        return len(IDIOMS) * (options.rounds * options.seconds + 5)

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure one idiom after the other."""
        reset_accounts(LOADED)
        sizes = memory(PlainAccount), memory(Account)
        slices: dict[str, list[tuple[float, float, float]]] = {}
        for name in select_names(self.names(), options.only):
            slices[name] = measure(IDIOMS[name], options.rounds * options.seconds)
            say(f"idioms: {name} done")
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=(
                FigureTable(
                    title="CPU time of the client",
                    columns=_COLUMNS,
                    rows=tuple(_row(name, pairs) for name, pairs in slices.items()),
                    notes=(f"An instance takes {sizes[0]:,.0f} bytes with Django alone, {sizes[1]:,.0f} here.",),
                ),
            ),
            data={"slices": slices, "bytes": sizes},
            sound=True,
        )


_COLUMNS = ("call", "Django, us", "here, us", "ratio", "lowest", "highest", "sent alone, us", "to Django")


def _row(name: str, slices: list[tuple[float, float, float]]) -> tuple[str | float, ...]:
    ratios, floors = [ours / stock for stock, ours, _ in slices], [alone / stock for stock, _, alone in slices]
    stock, ours, alone = (median(column) * 1e6 for column in zip(*slices, strict=True))
    return name, stock, ours, median(ratios), min(ratios), max(ratios), alone, median(floors)


SUITE = Idioms()
