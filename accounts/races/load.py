"""The accounts' strategies under a random load."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import operator
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from django.apps import apps
from django.db import transaction
from django.db.models import OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from accounts.engine import EngineName
from accounts.errors import InsufficientFunds
from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture
from accounts.races.mix import Mix
from accounts.races.mixtures import Mixture, strategies_of
from accounts.strategies import Strategy
from django_lockstep.errors import DeadlockDetected
from django_lockstep.lab.simulator.audit import AuditedAccount, AuditedEntry, Balances
from django_lockstep.lab.simulator.tally import LoadOperation
from django_lockstep.locking.retry import retrying

__all__ = ["AccountLoad", "LoadContender", "Workload"]

OPENING = Decimal("500.00")
"""The opening balance of every account."""
OVERDRAFT_LIMIT = Decimal("200.00")
"""The overdraft limit: so small that some withdrawals are refused."""
SMALLEST, LARGEST = 100, 10_000
"""Bounds of the amounts, in hundredths."""
_AT_ONCE = 256
"""Operations that are drawn ahead."""


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
    """Random deposits, withdrawals and transfers by one strategy or a mixture; picklable."""

    strategy: str
    """Its name."""
    model: str
    """The accounts' model, by its label."""
    using: str
    """The database."""
    accounts: tuple[Any, ...]
    """The keys of the accounts."""
    mix: Mix
    """What is done how often."""
    seed: int
    """What the draws depend on, with the round and the worker's number: every strategy gets the same ones."""
    round_number: int = 0
    """Which part of the draws."""
    engine: EngineName = "plain"
    """Which engine runs the strategy."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[AccountClient]:
        """Return this worker's part, which counts retries inside the block."""
        strategies = strategies_of(self.strategy)
        strategy = strategies[worker % len(strategies)].bound(
            model=apps.get_model(self.model), using=self.using, engine=self.engine
        )
        client = AccountClient(
            self, strategy=strategy, draws=random.Random(f"{self.seed}:{self.round_number}:{worker}")
        )
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

    def __init__(self, load: AccountLoad, *, strategy: Strategy, draws: random.Random) -> None:
        self.conflicts = 0
        self.deadlocks = 0
        self._accounts = load.accounts
        self._random = draws.random
        self._kinds = (self._deposit, self._withdraw, self._transfer)
        *self._bounds, self._end = itertools.accumulate(load.mix.weights)
        self._strategy = strategy
        self._drawn: list[LoadOperation] = []

    def next_operation(self) -> LoadOperation:
        """Return the next operation: its kind by the weights, accounts and amount evenly."""
        if not self._drawn:
            # Many at once: between two calls of the database one draw would take five times as long, as it finds
            # nothing of itself in the processor's caches.
            self._drawn = [self._operation() for _ in range(_AT_ONCE)]
        return self._drawn.pop()

    def _operation(self) -> LoadOperation:
        # Not choices(), randint() and choice(), which take twice as long.
        kind = self._kinds[bisect.bisect(self._bounds, self._random() * self._end)]
        return kind(Decimal(SMALLEST + int(self._random() * (LARGEST - SMALLEST + 1))).scaleb(-2))

    def count_retry(self, *, error: Exception, **_: object) -> None:
        """Receive the signal `retrying`."""
        if isinstance(error, DeadlockDetected):
            self.deadlocks += 1
        else:
            self.conflicts += 1

    def _deposit(self, amount: Decimal) -> LoadOperation:
        account = self._accounts[self._place(len(self._accounts))]
        return LoadOperation(perform=partial(self._strategy.deposit, account, amount), changes=((account, amount),))

    def _withdraw(self, amount: Decimal) -> LoadOperation:
        account = self._accounts[self._place(len(self._accounts))]
        return LoadOperation(perform=partial(self._strategy.withdraw, account, amount), changes=((account, -amount),))

    def _transfer(self, amount: Decimal) -> LoadOperation:
        place, beyond = self._place(len(self._accounts)), self._place(len(self._accounts) - 1)
        # Drawn from one fewer and moved past the source: evenly, and never the source itself.
        source, target = self._accounts[place], self._accounts[beyond + (beyond >= place)]
        return LoadOperation(
            perform=partial(self._strategy.transfer, source, target, amount),
            changes=((source, -amount), (target, amount)),
        )

    def _place(self, places: int) -> int:
        return int(self._random() * places)


@dataclass(slots=True, kw_only=True)
class LoadContender:
    """A strategy, or a mixture, with its accounts, as the simulator measures it."""

    strategy: Strategy | Mixture
    """What is measured."""
    fixture: Fixture
    """Where its accounts are opened."""
    workload: Workload
    """What is done with them."""
    versions: dict[Any, int] = field(default_factory=dict)
    """The accounts that were opened, with their first version."""

    @property
    def name(self) -> str:
        return self.strategy.name

    @property
    def engine(self) -> EngineName:
        """The engine that runs it: the plain one, unless the strategy has a compiled counterpart and is bound to it."""
        return "compiled" if self.strategy.engine == "compiled" and self.strategy.has_counterpart else "plain"

    @property
    def safe(self) -> bool:
        """Whether it claims to lose no update."""
        return self.strategy.safe

    @property
    def guarantee(self) -> str:
        """What it relies on."""
        return self.strategy.guarantee

    def open(self) -> None:
        keys = self.fixture.open_accounts(self.workload.accounts, balance=OPENING, overdraft_limit=OVERDRAFT_LIMIT)
        with transaction.atomic(using=self.fixture.using):
            self.versions = {account.pk: account.version for account in self._rows(keys)}

    def load(self, round_number: int) -> AccountLoad:
        """Return the load on these accounts."""
        return AccountLoad(
            strategy=self.name,
            model=self.fixture.model._meta.label,
            using=self.fixture.using,
            accounts=tuple(self.versions),
            mix=self.workload.mix,
            seed=self.workload.seed,
            round_number=round_number,
            engine=self.engine,
        )

    def balances(self) -> Balances:
        """Return what these accounts hold together now, by one statement."""
        entries: Any = self.fixture.model.entry_model()
        booked = entries._base_manager.filter(account=OuterRef("pk")).order_by().values("account")
        total = Coalesce(Subquery(booked.annotate(total=Sum("amount")).values("total")), Decimal(0))
        rows = self.fixture.model._base_manager.using(self.fixture.using).filter(pk__in=list(self.versions))
        pairs = list(rows.annotate(booked=total + OPENING).values_list("balance", "booked"))
        return Balances(
            stored=sum((balance for balance, _ in pairs), Decimal(0)),
            booked=sum((booked for _, booked in pairs), Decimal(0)),
            difference=sum((abs(balance - booked) for balance, booked in pairs), Decimal(0)),
        )

    def audited_accounts(self) -> Iterator[AuditedAccount]:
        """Yield the accounts with their entries, one row at a time."""
        # Server-side cursors need one session to their end, which a pooler grants to a transaction alone.
        with transaction.atomic(using=self.fixture.using):
            yield from self._with_entries()

    def _with_entries(self) -> Iterator[AuditedAccount]:
        entries: Any = self.fixture.model.entry_model()._base_manager
        stream = (
            entries.using(self.fixture.using)
            .filter(account__in=list(self.versions))
            .order_by("account_id", "pk")
            .values_list("account_id", "amount", "balance_after", "version_after")
        )
        groups = itertools.groupby(stream.iterator(chunk_size=2000), key=operator.itemgetter(0))
        key, group = next(groups, (None, iter(())))
        for account in self._rows(tuple(self.versions)):
            mine = account.pk == key
            # Accounts and entries are two streams in the same order, merged here: a long run may have more entries than
            # memory.
            yield self._audited_account(account, group if mine else iter(()))
            if mine:
                key, group = next(groups, (None, iter(())))

    def _audited_account(self, account: AbstractAccount, entries: Iterator[tuple[Any, ...]]) -> AuditedAccount:
        return AuditedAccount(
            account=account.pk,
            opening_balance=OPENING,
            opening_version=self.versions[account.pk],
            overdraft_limit=account.overdraft_limit,
            balance=account.balance,
            entries=(AuditedEntry(*row[1:]) for row in entries),
        )

    def _rows(self, keys: tuple[object, ...]) -> Iterator[AbstractAccount]:
        """Yield the accounts in the database's order of their keys, which is the entries' order too."""
        rows = self.fixture.model._base_manager.using(self.fixture.using)
        return rows.filter(pk__in=keys).order_by("pk").iterator(chunk_size=2000)
