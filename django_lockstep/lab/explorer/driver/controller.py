"""Runs one schedule: lets one actor make a step at a time, and records what happened."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue
from typing import Any

from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.move_builder import MoveBuilder
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.driver.trace import (
    Event,
    StepRecord,
    Trace,
    describe_other_statements,
    next_event,
)
from django_lockstep.lab.explorer.driver.wait_monitor import OTHERS_LOSE, DeadlockPolicy, RunState, WaitMonitor
from django_lockstep.lab.explorer.effects.footprints import lock, only
from django_lockstep.lab.explorer.effects.operations import Operation, line_of
from django_lockstep.lab.explorer.effects.serializable import Commits
from django_lockstep.lab.explorer.effects.transactions import Transaction
from django_lockstep.lab.explorer.errors import Nondeterminism, Overtaken, TooManySteps
from django_lockstep.lab.explorer.search.branches import Move, Schedule
from django_lockstep.lab.explorer.search.fairness import FairScheduler
from django_lockstep.lab.explorer.search.waits import Contest

_LOCK_TABLE = re.compile(r"\s*LOCK\b[^;]*;?\s*", re.IGNORECASE)
"""Not understood, but certainly over when its transaction is."""
_SCANS = {"index": "on", "seq": "off", "bitmap": "off", "indexonly": "off"}
ONE_PLAN = "; ".join(f"SET enable_{scan}scan = {allowed}" for scan, allowed in _SCANS.items())
"""Fixes plans, which otherwise depend on table sizes: they decide the order of reads and what SERIALIZABLE locks."""


_UNWIND_WITHIN = 2.0
"""Seconds that an abandoned actor has to unwind."""
_CANCEL_AFTER = 0.1
"""Seconds after which its statement is cancelled: not earlier, as it may be one with which it unwinds."""


class Controller:
    """Drives actors through runs; `close` ends their threads."""

    def __init__(
        self,
        names: Collection[str],
        *,
        server: Callable[[str], Server],
        step_timeout: float,
        max_steps: int,
    ) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._deadlock_policy = DeadlockPolicy()
        # Nothing that actors commit has to survive a crash.
        settings = f"SET deadlock_timeout = '{OTHERS_LOSE}'; SET synchronous_commit = off; {ONE_PLAN}"
        self.actors = [Actor(index, name, events=self.events, settings=settings) for index, name in enumerate(names)]
        self._server = server
        self._names = tuple(names)
        self._max_steps = max_steps
        self.deadline: float | None = None
        """When a run is abandoned, by `time.monotonic`."""
        self.look: Callable[[int, Collection[int]], None] | None = None
        """Called before the first move (-1) and after each one, with its number and the actors that stand at gates."""
        self.polling: set[str] = set()
        """Statements of loops that poll, over all runs."""
        self._lost: list[Actor] = []
        """Those that could not be unwound."""
        self.monitor = WaitMonitor(
            self.actors,
            events=self.events,
            server=server,
            on_wait=self._deadlock_policy.note_wait,
        )
        self.monitor.step_timeout = step_timeout
        self._reset()

    def _reset(self, *, in_turn: bool = False) -> None:
        self._state = self.monitor.state = RunState()
        self._transactions: dict[tuple[int, str], Transaction] = {}
        self._commits = Commits()
        self._deadlock_policy.reset()
        self._fairness = FairScheduler(self.polling, actors=len(self.actors))
        self._trace = Trace()
        self._builder = MoveBuilder(
            names=self._names,
            state=self._state,
            trace=self._trace,
            transaction=self._transaction,
            in_turn=in_turn,
        )

    def connect(self, alias: str) -> Callable[[], None]:
        """Start opening every actor's connection, all at the same time; return a function that waits for that.

        An error while connecting is raised again in the first run.
        """
        for actor in self.actors:
            actor.start(actor.connect, alias)
            self._state.running.add(actor.index)

        return self.monitor.wait_until_settled

    # One run

    def run(
        self,
        functions: Collection[Callable[[Any], Any]],
        argument: Any,
        *,
        schedule: Schedule,
        expected: Trace | None = None,
        in_turn: bool = False,
    ) -> Trace:
        """Run the functions under the schedule; the trace is incomplete if that abandons the run.

        ``expected`` is the last run: as long as the moves are the same, the statements must be the same. Raises
        `Nondeterminism` if the statements are others, `Overtaken` if waiters must go on ``in_turn`` and do not, or if
        the server lets another one go on first than the schedule, and `Stuck`.
        """
        self._reset(in_turn=in_turn)
        for actor, function in zip(self.actors, functions, strict=True):
            actor.start(function, argument)
            self._state.running.add(actor.index)
            # One after the other: code before the first statement runs without concurrency, in the same order each
            # time.
            self.monitor.wait_until_settled()
        if self.look is not None:
            self.look(-1, self._state.ready.keys())
        self._play(schedule, expected=expected)
        if not self._trace.complete:
            self.abandon()
        return self._trace

    def _play(self, schedule: Schedule, *, expected: Trace | None) -> None:
        """Make the schedule's moves, one after the other, until no actor is left or it abandons the run."""
        contest: Contest | None = None
        # An actor that waits is never chosen: the move that releases the lock contains the rest of its step.
        while contest is not None or self._state.ready:
            enabled = sorted(self._fairness.enabled(self._state.ready)) if contest is None else contest.candidates
            chosen = None if self._is_out_of_time() else schedule.choose(enabled)
            if chosen is None:
                self._trace.complete = False
                return
            # After a contest the winner already has its next statement ready, whichever the schedule asks for.
            ready = self._state.ready if contest is None else {}
            self._trace.enabled.append(tuple(sorted(enabled)))
            self._trace.pending.append(
                {i: (self._signature(operation, i), operation.origin) for i, operation in sorted(ready.items())}
            )
            if expected is not None and not self._repeats(expected, chosen):
                expected = None  # from here on it is another schedule
            if contest is None:
                move, contest = self._move(chosen)
            elif chosen == contest.turn.actor:
                move, contest = contest.turn, None
            else:
                raise Overtaken("The server let another waiter go on than the schedule says")
            self._trace.moves.append(move)
            schedule.record(move)
            if self.look is not None:
                self.look(len(self._trace.moves) - 1, self._state.ready.keys())

    def _is_out_of_time(self) -> bool:
        """Whether the time is over. Raises `TooManySteps` if the run goes on after its last allowed step."""
        if len(self._trace.moves) >= self._max_steps:
            last = self._trace.steps[-1]
            at = f" at {line_of(last.operation.origin)}" if last.operation.origin else ""
            raise TooManySteps(
                f"The run did not end within {self._max_steps} steps (max_steps); the last one was "
                f"{last.operation.template!r} of {self._names[last.actor]}{at}"
            )
        self._trace.out_of_time = self.deadline is not None and time.monotonic() >= self.deadline
        return self._trace.out_of_time

    def _move(self, chosen: int) -> tuple[Move, Contest | None]:
        """Have the actor make its next step; return the move, and which waiters have then competed."""
        operation = self._state.ready[chosen]
        statement = self._transaction(chosen, operation).statement(operation)
        if statement.kind == "UNKNOWN" and not _LOCK_TABLE.fullmatch(operation.sql):
            self.actors[chosen].session_changed = True
        # While the actor still stands at its gate, so that the copy has the rows from before its write.
        self._server(operation.alias).tables.save_for(statement)
        # A copy: the move is described by how it changed the waits.
        waiting = dict(self._state.waiting)
        self._begin(chosen, operation)
        self.monitor.wait_until_settled()
        move, contest = self._builder.build(chosen, was_waiting=waiting)
        touched = move.footprint if contest is None else move.footprint | contest.turn.footprint
        tried, released = lock("try", statement.locks), only({"release", "anything"}, touched)
        self._trace.yields += self._fairness.note(chosen, operation, tried=tried, released=released)
        return move, contest

    def _repeats(self, expected: Trace, chosen: int) -> bool:
        """Whether the move is the expected run's, too. Raises `Nondeterminism` if other statements stand here now."""
        number = len(self._trace.moves)
        if number >= len(expected.pending):
            return False
        before, now = expected.pending[number], self._trace.pending[number]
        if {i: text for i, (text, _) in before.items()} != {i: text for i, (text, _) in now.items()}:
            raise Nondeterminism(describe_other_statements(self._names, number, before, now))
        return number < len(expected.moves) and expected.moves[number].actor == chosen

    def _signature(self, operation: Operation, actor: int) -> str:
        if operation.signature is None:  # computed once, but compared at each move until it is sent
            touched = self._transaction(actor, operation).statement(operation)
            # Not the parameters: times and random tokens differ between runs that are equal otherwise. The rows that
            # the statement names count, because the reduction rests on them.
            operation.signature = f"{operation.template} {touched.rows}"
        return operation.signature

    def _transaction(self, actor: int, operation: Operation) -> Transaction:
        key = (actor, operation.alias)
        if key not in self._transactions:
            self._transactions[key] = Transaction(self._server(operation.alias).catalog, self._commits)
        return self._transactions[key]

    # One move

    def _begin(self, chosen: int, operation: Operation) -> None:
        """Let the actor pass its gate."""
        self._transaction(chosen, operation).begin(operation)
        del self._state.ready[chosen]
        step = StepRecord(actor=chosen, number=len(self._trace.moves), operation=operation)
        self._trace.steps.append(step)
        self._state.current[chosen] = step
        self._state.running.add(chosen)
        # By the actor's own session: each session looks for deadlocks after its own deadlock_timeout, which no other
        # session can set.
        statement = self._deadlock_policy.timeout_statement(chosen, operation, waiting=self._state.waiting)
        self.actors[chosen].go(statement)

    # Ends

    def abandon(self) -> None:
        """Make every actor that is not done raise at its next statement; those that do not get there are lost."""
        unfinished = self._state.ready.keys() | self._state.waiting.keys() | self._state.running
        # All of them before any is waited for: one may hold the lock that another one needs to get to its end.
        for index in unfinished:
            self.actors[index].abandon()
        deadline = time.monotonic() + _UNWIND_WITHIN
        while unfinished and time.monotonic() < deadline:
            try:
                index, kind, _ = next_event(self.events, timeout=_CANCEL_AFTER)
            except Empty:
                self._cancel(unfinished)
                continue
            if kind == "done":
                unfinished.discard(index)
        self._lost += [self.actors[index] for index in sorted(unfinished)]
        self._state.ready.clear()
        self._state.waiting.clear()
        self._state.running.clear()

    def _cancel(self, unfinished: Collection[int]) -> None:
        """Cancel the actors' statements in the server. Code that sends nothing has to come to its end by itself."""
        for index in unfinished:
            for alias, hooks in list(self.actors[index].hooks.items()):
                self._server(alias).query("SELECT pg_cancel_backend(%s)", hooks.pid)

    def give_up(self) -> str:
        """Unwind the actors; return a sentence on those that cannot be unwound, or nothing.

        The sessions of these end at once, their threads when what they wait for comes.
        """
        self.abandon()
        for actor in self._lost:
            for alias, hooks in list(actor.hooks.items()):
                self._server(alias).terminate(hooks.pid)
        names = ", ".join(actor.name for actor in self._lost)
        return f"\nThe sessions of {names} were ended; their threads still wait." if names else ""

    def close(self) -> None:
        """Unwind the actors, and end every thread that can be ended."""
        self.give_up()
        for actor in self.actors:
            actor.stop()
        for actor in self.actors:
            if actor not in self._lost:
                actor.thread.join(_UNWIND_WITHIN)
