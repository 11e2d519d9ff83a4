"""Contenders that are Python: a way to deposit, gone by worker processes."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from benchmarks.contest import Cell
from benchmarks.cpu import server_seconds
from benchmarks.deposit.books import check
from benchmarks.deposit.ways import Way, WayLoad
from benchmarks.figures import Sample, measured
from benchmarks.workers import race, require_no_errors
from django_lockstep.lab.simulator.pool import WorkerPool

__all__ = ["WorkerContender"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContender:
    """A way to deposit, gone by the workers of a pool."""

    way: Way
    """The way."""
    module: str
    """Where its ``WAYS`` are, for the workers to find it."""
    pool: WorkerPool
    """The workers, at least as many as any cell asks for."""
    missing: str | None = None
    """Why it cannot run on this machine, if so."""

    @property
    def name(self) -> str:
        """The way's name."""
        return self.way.name

    def obstacle(self, cell: Cell) -> str | None:
        """Return why it cannot run in this cell."""
        if self.way.own_rows and cell.rows < cell.workers:
            return "each worker needs a row of its own"
        return self.missing

    def run(self, cell: Cell, *, seconds: int) -> Sample:
        """Deposit on fresh rows. Raises `WorkersError`, also for operations that failed."""
        way = self.way
        way.open_books(cell.rows)
        load = WayLoad(module=self.module, way=self.name, rows=cell.rows, workers=cell.workers)
        server = server_seconds(connection)
        tallies, client = race(self.pool, load, workers=cell.workers, seconds=seconds)
        server_after = server_seconds(connection)
        require_no_errors(tallies)
        if way.settle:
            way.settle()
        told = sum(tally.succeeded for tally in tallies) * way.size
        books = check(rows=cell.rows * way.slots, told=told, with_entries=way.with_entries, tables=way.tables)
        return measured(
            tallies,
            size=way.size,
            retries=True,
            client_cpu=client,
            server_cpu=None if server is None or server_after is None else server_after - server,
            verdict=books.verdict,
        )
