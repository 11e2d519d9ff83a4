"""Contenders in Python: a method of depositing, run by worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from django.db import connection

from benchmarks.contest import Cell
from benchmarks.cpu import server_seconds
from benchmarks.deposit.methods import DepositLoad, DepositMethod
from benchmarks.deposit.rows import check, reset_accounts
from benchmarks.figures import Sample, build_sample
from benchmarks.workers import race
from django_lockstep.lab.simulator.pool import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContender:
    """A method of depositing, run by the workers of a pool."""

    method: DepositMethod
    """The method."""
    module: str
    """The module whose ``METHODS`` has it, for the worker processes."""
    pool: WorkerPool
    """The workers, at least as many as any cell asks for."""

    @property
    def name(self) -> str:
        """The method's name."""
        return self.method.name

    def obstacle(self, cell: Cell) -> str | None:
        """Return why it cannot run in this cell; None if it can."""
        # On shared rows it would meet conflicts, which this method is to be without.
        if self.method.own_rows and cell.rows < cell.workers:
            return "each worker needs a row of its own"
        package = self.method.package
        return None if package is None or find_spec(package) else f"{package} is not installed"

    def run(self, cell: Cell, *, seconds: int) -> Sample:
        """Deposit on fresh rows. Raises `WorkersError`, also for operations that failed."""
        method = self.method
        reset_accounts(cell.rows)
        load = DepositLoad(module=self.module, method=self.name, rows=cell.rows, workers=cell.workers)
        server = server_seconds(connection)
        tallies, client = race(self.pool, load, workers=cell.workers, seconds=seconds)
        # Before the check, whose queries are not the contender's.
        server_after = server_seconds(connection)
        reported = sum(tally.succeeded for tally in tallies) * method.size
        books = check(rows=cell.rows, reported=reported, with_entries=method.with_entries)
        return build_sample(
            tallies,
            size=method.size,
            retries=True,
            client_cpu=client,
            server_cpu=None if server is None or server_after is None else server_after - server,
            verdict=books.verdict,
        )
