"""The deposit with its entry: pgbench, psycopg, plain Django, other packages and every method of this one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from benchmarks.contest import Contender, Contest, time_bound
from benchmarks.deposit.contender import WorkerContender
from benchmarks.deposit.pgbench import SCRIPTS
from benchmarks.suite import Options, Say, Section, select_names
from benchmarks.workers import worker_pool
from django_lockstep.lab.simulator.pool import WorkerPool

__all__ = ["SUITE", "YARDSTICK"]

YARDSTICK = "pgbench:one-statement"
"""The contender with which all others are compared: the whole deposit in one prepared statement."""

_MODULES = ("benchmarks.deposit.raw", "benchmarks.deposit.others", "benchmarks.deposit.ours")
_START = 3.0
"""Maximum seconds for one worker process to start while all others start."""
_UNSAFE = ("strategy:naive", "strategy:naive_atomic")
"""Contenders that are expected to be wrong."""

_SUMMARY = """\
Every operation is one deposit of 1.00 with its ledger entry (pgbench:update and psycopg:update: without), on the real \
tables with their triggers, into an account drawn evenly; `account:` runs the compiled engine, deposit-plain none. \
`ratio` is operations a second by those of pgbench:one-statement in the same round, `lowest` and `highest` its \
extremes over the rounds; everything else is the median of the rounds. Fairness is Jain's index over the workers; CPU \
is of all clients, and of all the server's processes. In `batch` one statement has 100 deposits: operations count \
deposits, latencies whole batches. account:try_deposit reads the account before each attempt; in-hand has read it long \
before and never meets a conflict. The verdict compares balances, versions and entries with what was reported to have \
succeeded.\
"""


@dataclass(frozen=True, slots=True)
class Deposit:
    name: str = "deposit"

    def names(self) -> tuple[str, ...]:
        """Return the contenders' names."""
        return tuple(script.name for script in SCRIPTS) + tuple(
            name for module in _MODULES for name in import_module(module).METHODS
        )

    def seconds(self, options: Options) -> float:
        """Return how long all rounds take at most."""
        return time_bound(options, contenders=len(self._taking_part(options))) + _START * max(options.workers)

    def run(self, options: Options, *, say: Say) -> Section:
        """Measure all contenders."""
        names = self._taking_part(options)
        # One pool for all cells and rounds; cells with fewer workers leave the rest idle.
        with worker_pool(max(options.workers)) as pool:
            contenders = [contender for contender in self._contenders(pool) if contender.name in names]
            contest = Contest(
                contenders=contenders,
                yardstick=YARDSTICK,
                options=options,
                interrupted=lambda: pool.interrupt.requested,
            )
            results = contest.run(say=say)
        wrong = {
            name
            for result in results
            for name, figures in result.figures.items()
            # Those that lose deposits by design show what the others are paid for.
            if figures.verdict != "correct" and name not in _UNSAFE
        }
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=tuple(result.table() for result in results),
            data={"yardstick": YARDSTICK, "cells": [result.data() for result in results], "wrong": sorted(wrong)},
            sound=not wrong,
        )

    def _taking_part(self, options: Options) -> tuple[str, ...]:
        names = select_names(self.names(), options.only)
        # Without it there are no ratios.
        return names if YARDSTICK in names else (YARDSTICK, *names)

    def _contenders(self, pool: WorkerPool) -> list[Contender]:
        methods = ((name, method) for name in _MODULES for method in import_module(name).METHODS.values())
        return [*SCRIPTS, *(WorkerContender(method=method, module=name, pool=pool) for name, method in methods)]


SUITE = Deposit()
