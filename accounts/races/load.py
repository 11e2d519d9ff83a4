"""The accounts' strategies under a random load."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import operator
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from django.db import models, transaction
from django.db.models import Sum
from django.db.models.functions import Coalesce

from accounts.errors import InsufficientFunds
from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture
from accounts.strategies import Strategy
from django_lockstep.errors import DeadlockDetected
from django_lockstep.lab.simulator.audit import AuditedAccount, AuditedEntry, Balances
from django_lockstep.lab.simulator.tally import LoadOperation
from django_lockstep.lab.simulator.trials import LoadTrial
from django_lockstep.locking.retry import retrying

OPENING = Decimal("500.00")
"""The opening balance of every account."""
OVERDRAFT_LIMIT = Decimal("200.00")
"""The overdraft limit: so small that some withdrawals are refused."""
SMALLEST, LARGEST = 100, 10_000
"""Bounds of the amounts, in hundredths."""
_AT_ONCE = 256
"""Operations that are drawn ahead."""


class Mix(NamedTuple):
    """Weights of the kinds of operation."""

    deposit: float = 1
    withdraw: float = 1
    transfer: float = 0

    def __str__(self) -> str:
        return ":".join(f"{weight:g}" for weight in self)

    @classmethod
    def parse(cls, text: str) -> Mix:
        """Return the mix written as ``deposit:withdraw:transfer``. Raises ``ValueError`` for anything else."""
        try:
            deposit, withdraw, transfer = map(float, text.split(":"))
        except ValueError:
            raise ValueError(
                f"--mix must be three weights, deposit:withdraw:transfer, such as 2:1:1, not {text!r}"
            ) from None
        mix = cls(deposit, withdraw, transfer)
        if not all(math.isfinite(weight) and weight >= 0 for weight in mix) or not any(mix):
            raise ValueError(f"--mix must be weights of at least 0, not all of them 0, not {mix}")
        return mix

    @classmethod
    def default(cls, *, accounts: int) -> Mix:
        """Return equal weights, of transfers too where there are two accounts for them."""
        return cls(transfer=1 if accounts > 1 else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The accounts of a load, and what is done with them. Raises ``ValueError`` for transfers on one account."""

    accounts: int
    """How many; with 1, all workers write the same account."""
    mix: Mix
    """The weights of the operations."""
    seed: int
    """The seed of the random draws, with the round and the worker's number: every strategy gets the same ones."""

    def __post_init__(self) -> None:
        if self.mix.transfer and self.accounts == 1:
            raise ValueError(f"--mix {self.mix} has transfers, which need two accounts: add --accounts 2 or more")

    def describe(self) -> dict[str, Any]:
        """Return it in plain values, for reports."""
        return {
            "accounts": self.accounts,
            "mix": str(self.mix),
            "seed": self.seed,
            "opening_balance": str(OPENING),
            "overdraft_limit": str(OVERDRAFT_LIMIT),
            "amounts": [str(Decimal(bound).scaleb(-2)) for bound in (SMALLEST, LARGEST)],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLoad:
    """Random deposits, withdrawals and transfers; picklable."""

    strategies: tuple[Strategy, ...]
    """What the workers use, in turn: with two of them half of the workers use each."""
    accounts: tuple[Any, ...]
    """The keys of the accounts."""
    workload: Workload
    """What is done with them."""
    round_number: int = 0
    """Which part of the draws."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[AccountClient]:
        """Return this worker's part, which counts retries inside the block."""
        strategy = self.strategies[worker % len(self.strategies)]
        draws = random.Random(f"{self.workload.seed}:{self.round_number}:{worker}")
        client = AccountClient(strategy, self.accounts, mix=self.workload.mix, draws=draws)
        # So that the first operation measured is not the one that imports and connects.
        strategy.accounts.filter(pk=self.accounts[0]).get()
        retrying.connect(client.count_retry)
        try:
            yield client
        finally:
            retrying.disconnect(client.count_retry)


class AccountClient:
    """One worker's operations."""

    refusals: tuple[type[Exception], ...] = (InsufficientFunds,)

    def __init__(self, strategy: Strategy, accounts: Sequence[Any], *, mix: Mix, draws: random.Random) -> None:
        self.conflicts = 0
        self.deadlocks = 0
        self._strategy = strategy
        self._accounts = accounts
        self._random = draws.random
        *self._bounds, self._end = itertools.accumulate(mix)
        self._drawn: list[LoadOperation] = []

    def next_operation(self) -> LoadOperation:
        """Return the next operation: its kind by the weights, accounts and amount evenly."""
        if not self._drawn:
            # Many at once: between two calls of the database one draw would take five times as long, as it finds
            # nothing of itself in the processor's caches.
            self._drawn = [self._draw() for _ in range(_AT_ONCE)]
        return self._drawn.pop()

    def _draw(self) -> LoadOperation:
        # Not choices(), randint() and choice(), which take twice as long.
        kind = bisect.bisect(self._bounds, self._random() * self._end)
        amount = Decimal(SMALLEST + int(self._random() * (LARGEST - SMALLEST + 1))).scaleb(-2)
        place = int(self._random() * len(self._accounts))
        account, strategy = self._accounts[place], self._strategy
        if kind == 0:
            return LoadOperation(partial(strategy.deposit, account, amount), ((account, amount),))
        if kind == 1:
            return LoadOperation(partial(strategy.withdraw, account, amount), ((account, -amount),))
        beyond = int(self._random() * (len(self._accounts) - 1))
        # Drawn from one fewer and moved past the source: evenly, and never the source itself.
        target = self._accounts[beyond + (beyond >= place)]
        changes = ((account, -amount), (target, amount))
        return LoadOperation(partial(strategy.transfer, account, target, amount), changes)

    def count_retry(self, *, error: Exception, **_: object) -> None:
        """Receive the signal `retrying`."""
        if isinstance(error, DeadlockDetected):
            self.deadlocks += 1
        else:
            self.conflicts += 1


def joint_name(strategies: Sequence[Strategy]) -> str:
    """Return what reports call strategies that share accounts."""
    return "+".join(strategy.name for strategy in strategies)


@dataclass(slots=True, kw_only=True)
class AccountTrial(LoadTrial):
    """A strategy with its accounts, or several that share them, as the simulator measures it."""

    strategies: tuple[Strategy, ...]
    """What is measured, bound to one model and database."""
    fixture: Fixture
    """Where its accounts are opened."""
    workload: Workload
    """What is done with them."""
    versions: dict[Any, int] = field(default_factory=dict)
    """The accounts that were opened, with their first version."""

    @property
    def name(self) -> str:
        return joint_name(self.strategies)

    @property
    def safe(self) -> bool:
        # An advisory lock keeps out only those who take it, so that such a strategy is safe alone and not in company.
        alone = len(self.strategies) == 1
        return all(strategy.safe and (alone or not strategy.needs_all_writers) for strategy in self.strategies)

    def open(self) -> None:
        keys = self.fixture.open_accounts(self.workload.accounts, balance=OPENING, overdraft_limit=OVERDRAFT_LIMIT)
        self.versions = dict(self.fixture.accounts.filter(pk__in=keys).order_by("pk").values_list("pk", "version"))

    def load(self, round_number: int) -> AccountLoad:
        keys = tuple(self.versions)
        return AccountLoad(strategies=self.strategies, accounts=keys, workload=self.workload, round_number=round_number)

    def balances(self) -> Balances:
        # One statement, so that balances and entries are of one snapshot.
        total = Coalesce(Sum("entries__amount"), Decimal(0))
        pairs = list(self._rows.annotate(booked=total + OPENING).values_list("balance", "booked"))
        return Balances(
            stored=sum((balance for balance, _ in pairs), Decimal(0)),
            booked=sum((booked for _, booked in pairs), Decimal(0)),
            difference=sum((abs(balance - booked) for balance, booked in pairs), Decimal(0)),
        )

    def audited_accounts(self) -> Iterator[AuditedAccount]:
        """Yield the accounts with their entries, one row at a time: a long run may have more entries than memory."""
        columns = ("pk", "overdraft_limit", "balance")
        of_entry = ("entries__amount", "entries__balance_after", "entries__version_after")
        rows = self._rows.order_by("pk", "entries__pk").values_list(*columns, *of_entry)
        # Server-side cursors need one session to their end, which a pooler grants to a transaction alone.
        with transaction.atomic(using=self.fixture.using):
            groups = itertools.groupby(rows.iterator(chunk_size=2000), key=operator.itemgetter(0, 1, 2))
            for (pk, overdraft_limit, balance), group in groups:
                yield AuditedAccount(
                    account=pk,
                    opening_balance=OPENING,
                    opening_version=self.versions[pk],
                    overdraft_limit=overdraft_limit,
                    balance=balance,
                    # An account without entries is one row of NULLs.
                    entries=(AuditedEntry(*row[3:]) for row in group if row[3] is not None),
                )

    @property
    def _rows(self) -> models.QuerySet[AbstractAccount]:
        return self.fixture.accounts.filter(pk__in=list(self.versions))
