"""Runs one schedule: lets one actor go at a time, and asks the server who is blocked."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.explorer.actors import Event, acquire_actor, release_actor
from django_lockstep.lab.explorer.deadlock_policy import DeadlockPolicy
from django_lockstep.lab.explorer.differences import other_statements
from django_lockstep.lab.explorer.errors import Nondeterminism, Overtaken, Stuck
from django_lockstep.lab.explorer.fairness import FairScheduler
from django_lockstep.lab.explorer.footprints import LOCAL, Footprint, dependent
from django_lockstep.lab.explorer.limits import Limits
from django_lockstep.lab.explorer.operations import Operation
from django_lockstep.lab.explorer.overlap import Overlap
from django_lockstep.lab.explorer.search import Move
from django_lockstep.lab.explorer.server import Server
from django_lockstep.lab.explorer.trace import StepRecord, Trace
from django_lockstep.lab.explorer.transactions import Transaction
from django_lockstep.lab.explorer.unwinding import Unwinding
from django_lockstep.lab.explorer.waits import Waits, has_cycle, met_by_chance, overtaken

__all__ = ["Chooser", "Controller"]

_QUICK = 0.003
"""Seconds after which a step is so slow that the server is asked whether it waits."""
_AT_ONCE = 0.00005
"""The same for a step that seems to need a lock that somebody has."""
_PAUSE_MAX = 0.01
_ONE_PLAN = "; ".join(f"SET enable_{scan}scan = off" for scan in ("seq", "bitmap", "indexonly"))
"""What is read, in which order, and how much of a table SERIALIZABLE locks, depends on the plan; sizes must not."""
_KEEPING = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "LOCAL"})
"""Statements that give up no lock while they succeed inside a transaction."""


class Chooser(Protocol):
    """Decides who moves."""

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return one of the actors that could move, or None to give the run up."""


class Controller:
    """Drives actors through runs; `close` ends their threads."""

    def __init__(
        self,
        names: Collection[str],
        *,
        server: Callable[[str], Server],
        database: Hashable,
        step_timeout: float,
        victim: str,
    ) -> None:
        self._database = database
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._deadlock_policy = DeadlockPolicy(last_loses=victim == "last")
        timeout = self._deadlock_policy.initial_timeout
        settings = f"SET deadlock_timeout = '{timeout}'; SET synchronous_commit = off; {_ONE_PLAN}"
        self.actors = [
            acquire_actor(index, name, database=database, events=self.events, settings=settings)
            for index, name in enumerate(names)
        ]
        self._server = server
        self._names = tuple(names)
        self.step_timeout = step_timeout
        self.limits = Limits()
        self._polling: set[str] = set()
        self._unwinding = Unwinding(self.actors, events=self.events, server=server)
        self._in_turn = False
        self._reset()

    def _reset(self) -> None:
        self._ready: dict[int, Operation] = {}
        self._waiting: dict[int, frozenset[int]] = {}
        self._running: set[int] = set()
        self._current: dict[int, StepRecord] = {}
        self._transactions: dict[tuple[int, str], Transaction] = {}
        self._overlap = Overlap()
        self._deadlock_policy.reset()
        self._fairness = FairScheduler(self._polling)
        self._released = False
        """Whether a lock may have been given up since the server was last asked who waits."""
        self._trace = Trace()
        self.contended = False
        """Whether several waited at a time in this run, or went on in a way that is the server's affair."""

    def connect(self, alias: str) -> Callable[[], None]:
        """Let every actor open its connection, all at the same time; what goes wrong shows in the first run.

        Returns what waits until they have.
        """
        for actor in self.actors:
            actor.start(actor.connect, alias)
            self._running.add(actor.index)
        return self._wait_until_settled

    # One run

    def run(
        self,
        functions: Collection[Callable[[Any], Any]],
        argument: Any,
        *,
        chooser: Chooser,
        expected: Trace | None = None,
        record: Callable[[Move], None] = lambda move: None,
        in_turn: bool = False,
    ) -> Trace:
        """Run the functions under the chooser's schedule; the trace is incomplete where it gave up.

        ``expected`` is the run before: as long as the moves are the same, the statements have to be, too. Raises
        `Nondeterminism` where they are not, `Overtaken` where waiters have to go on ``in_turn`` and do not; `Stuck`.
        """
        self._reset()
        self._in_turn = in_turn
        for actor, function in zip(self.actors, functions, strict=True):
            actor.start(function, argument)
            self._running.add(actor.index)
            self._wait_until_settled()
        while self._ready:
            enabled, over = self._fairness.enabled(self._ready), self.limits.is_over(self._trace, self._names)
            chosen = None if over else chooser.choose(enabled)
            if chosen is None:
                self._trace.complete = False
                self.abandon()
                break
            self._note_state(expected)
            move = self._move(chosen)
            self._trace.moves.append(move)
            self._trace.yields += self._fairness.note(chosen, self._current[chosen].operation)
            record(move)
        return self._trace

    def _note_state(self, expected: Trace | None) -> None:
        trace = self._trace
        number = len(trace.moves)
        trace.enabled.append(tuple(sorted(self._fairness.enabled(self._ready))))
        trace.pending.append({i: (self._signature(one, i), one.origin) for i, one in sorted(self._ready.items())})
        if expected and expected.actors[:number] == trace.actors and number < len(expected.pending):
            before, now = expected.pending[number], trace.pending[number]
            if {i: text for i, (text, _) in before.items()} != {i: text for i, (text, _) in now.items()}:
                raise Nondeterminism(other_statements(self._names, number, before, now))

    def _signature(self, operation: Operation, actor: int) -> str:
        if operation.signature is None:  # asked again at each move until it is let go
            touched = self._transaction(actor, operation).statement(operation)
            operation.signature = f"{operation.template} {touched.rows}"
        return operation.signature

    def _transaction(self, actor: int, operation: Operation) -> Transaction:
        key = (actor, operation.alias)
        if key not in self._transactions:
            self._transactions[key] = Transaction(self._server(operation.alias).catalog, self._overlap)
        return self._transactions[key]

    # One move

    def _move(self, chosen: int) -> Move:
        operation = self._ready[chosen]
        transaction = self._transaction(chosen, operation)
        self._save_tables(chosen, operation, transaction)
        del self._ready[chosen]
        transaction.begin(operation)
        number = len(self._trace.moves)
        step = StepRecord(actor=chosen, number=number, operation=operation)
        self._trace.steps.append(step)
        self._current[chosen] = step
        waiting = dict(self._waiting)
        self._running.add(chosen)
        pause = _AT_ONCE if self._expects_wait(chosen, operation) else _QUICK
        self.actors[chosen].go(self._deadlock_policy.timeout_statement(chosen, operation, waiting=self._waiting))
        self._wait_until_settled(pause)
        return self._build_move(chosen, number, was_waiting=waiting)

    def _save_tables(self, chosen: int, operation: Operation, transaction: Transaction) -> None:
        """Copy what is about to be written for the first time, and note what the session may keep."""
        server = self._server(operation.alias)
        statement = transaction.statement(operation)
        if statement.kind == "UNKNOWN":
            self.actors[chosen].session_changed = True
            server.save_all()
        else:
            server.save(table for table, _ in statement.writes)

    def _expects_wait(self, chosen: int, operation: Operation) -> bool:
        """Whether the step seems to need a lock that somebody has; only a guess, the server is asked in any case."""
        wanted = self._transaction(chosen, operation).waiting(operation).locks
        return any(
            transaction.holds_against(wanted)
            for (actor, _), transaction in self._transactions.items()
            if actor != chosen
        )

    def _build_move(self, chosen: int, number: int, *, was_waiting: Waits) -> Move:
        touched: Footprint = LOCAL
        parts: dict[int, Footprint] = {}
        for index, step in sorted(self._current.items()):
            if index in self._waiting or step.ended is not None:
                continue
            step.ended = number
            parts[index] = self._transaction(index, step.operation).footprint(step.operation)
            self._note_deadlock(index, step.operation)
            if index in was_waiting:
                step.woken_by = chosen
        if chosen in self._waiting:
            operation = self._current[chosen].operation
            parts[chosen] = self._transaction(chosen, operation).waiting(operation)
        for part in parts.values():
            touched = touched | part
        self._note_unsteerable(parts, chosen, was_waiting=was_waiting)
        return Move(
            actor=chosen,
            footprint=touched,
            woken=frozenset(parts.keys() & was_waiting.keys()),
            waits_for=self._waiting.get(chosen, frozenset()),
            cycle=self._cycle_of(number),
        )

    def _note_unsteerable(self, parts: Mapping[int, Footprint], chosen: int, *, was_waiting: Waits) -> None:
        """Note where only the server knows what comes next; ``parts`` are what the steps touched that ended."""
        if overtaken(was_waiting, self._waiting) and self._in_turn:
            raise Overtaken("Of those who waited, the server let go on first who had come later")
        woken = [self._current[index] for index in parts if index in was_waiting]
        let_go = {self._transaction(each.actor, each.operation): parts[each.actor] for each in woken}
        self._trace.unsteerable += (
            any(self._order_matters(one, other) for one, other in itertools.combinations(woken, 2))
            or met_by_chance(was_waiting, self._waiting)
            or self._overlap.refuses_by_chance(parts[chosen], let_go)
        )
        self.contended = self.contended or self._trace.unsteerable > 0

    def _order_matters(self, one: StepRecord, other: StepRecord) -> bool:
        """Whether it may matter which of two woken steps went on first."""
        errors = [each.operation.error for each in (one, other)]
        if all(error is not None and sqlstate_of(error) == "40001" for error in errors):
            return False  # under one snapshot everyone who waited for a writer fails with its COMMIT
        prints = [self._transaction(each.actor, each.operation).waiting(each.operation) for each in (one, other)]
        return dependent(*prints)

    def _note_deadlock(self, victim: int, operation: Operation) -> None:
        if operation.error is None or sqlstate_of(operation.error) != "40P01":
            return
        driver_error = operation.error if hasattr(operation.error, "diag") else operation.error.__cause__
        detail = getattr(getattr(driver_error, "diag", None), "message_detail", None) or ""
        by_pid = {step.operation.pid: index for index, step in self._current.items()}
        cycle = frozenset(by_pid[pid] for pid in map(int, re.findall(r"[Pp]rocess (\d+)", detail)) if pid in by_pid)
        for pid, index in by_pid.items():
            detail = re.sub(rf"\b[Pp]rocess {pid}\b", self.actors[index].name, detail)
        self._trace.cycles.append((cycle | {victim}, victim, detail))

    def _cycle_of(self, number: int) -> frozenset[int]:
        """Return the actors of the deadlocks that ended in this move."""
        ended = {step.actor for step in self._current.values() if step.ended == number}
        found = [cycle for cycle, victim, _ in self._trace.cycles if victim in ended]
        return frozenset().union(*found) if found and number == len(self._trace.moves) else frozenset()

    # Until nobody moves

    def _wait_until_settled(self, pause: float = _QUICK) -> None:
        """Return when every actor stands at a gate, is done, or waits for another one according to the server."""
        while True:
            held = self._await_running(pause)
            if not held:
                return
            for index in sorted(held):
                self._waiting.pop(index, None)
                self._running.add(index)
                self.actors[index].go()
                self._wait_for_gate(index)

    def _wait_for_gate(self, index: int) -> None:
        """Let one actor reach its next gate; no SQL is sent on the way."""
        deadline = time.monotonic() + self.step_timeout
        while index in self._running:
            self._handle_event(self._next_event(deadline), held=set())

    def _await_running(self, pause: float) -> set[int]:
        """Wait for those who move, and return those of the waiting who were woken and hold now.

        ``pause`` is how many seconds pass before the server is asked whether they wait.
        """
        held: set[int] = set()
        deadline = time.monotonic() + self.step_timeout
        patient = bool(self._running)
        while True:
            if self._receive(held, timeout=pause if patient else None):
                patient = bool(self._running)
                continue
            unsettled = self._running | (self._waiting.keys() - held)
            if not unsettled or (self._still_blocked(unsettled) and self.events.empty()):
                return held
            if time.monotonic() > deadline:
                raise Stuck(self._stuck_report(unsettled))
            pause, patient = min(2 * pause, _PAUSE_MAX), True

    def _receive(self, held: set[int], *, timeout: float | None) -> bool:
        """Take one event, if there is one within the timeout; None does not wait."""
        try:
            event = self.events.get(block=timeout is not None, timeout=timeout)
        except Empty:
            return False
        self._handle_event(event, held=held)
        return True

    def _next_event(self, deadline: float) -> Event:
        try:
            return self.events.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise Stuck(self._stuck_report(self._running)) from None

    def _handle_event(self, event: Event, *, held: set[int]) -> None:
        index, kind, operation = event
        if kind == "woken":
            self._running.discard(index)
            held.add(index)
            return
        self._running.discard(index)
        self._waiting.pop(index, None)
        held.discard(index)
        self._released = self._released or self._may_release(index, operation)
        if kind == "gate" and operation is not None:
            self._ready[index] = operation

    def _may_release(self, index: int, following: Operation | None) -> bool:
        """Whether what the actor did last may have given up a lock; ``following`` is what it stands before now."""
        step = self._current.get(index)
        if step is None or following is None:
            return True
        last = step.operation
        statement = self._transaction(index, last).statement(last)
        same = (following.alias, following.pid) == (last.alias, last.pid) and following.in_transaction
        return last.error is not None or not same or statement.kind not in _KEEPING

    def _still_blocked(self, unsettled: set[int]) -> bool:
        """Whether all of these wait. Nobody who waits already is asked for again before a lock is given up."""
        if self._ready and not self._released and unsettled <= self._waiting.keys():
            return True
        blocked = self._all_blocked(unsettled)
        self._released = self._released and not blocked
        return blocked

    def _all_blocked(self, unsettled: set[int]) -> bool:
        """Whether the server says that all of these wait for other actors, and not in a circle."""
        pids = {step.operation.pid: index for index, step in self._current.items() if index in unsettled}
        if len(pids) < len(unsettled):
            return False  # somebody has sent nothing yet
        aliases = {self._current[index].operation.alias for index in unsettled}
        blocked = self._server(min(aliases)).blocked(list(pids))
        if len(blocked) < len(pids):
            return False
        owners = {hooks.pid: actor.index for actor in self.actors for hooks in actor.hooks.values()}
        if any(pid not in owners for blockers in blocked.values() for pid in blockers):
            return False
        waits = {pids[pid]: frozenset(owners[blocker] for blocker in blockers) for pid, blockers in blocked.items()}
        if has_cycle(waits):
            return False
        for index, blockers in waits.items():
            self._note_wait(index, blockers)
        return True

    def _note_wait(self, index: int, blockers: frozenset[int]) -> None:
        self.actors[index].waits = True
        self._running.discard(index)
        step = self._current[index]
        if index not in self._waiting:
            self._deadlock_policy.note_wait(index)
        if index not in self._waiting and self.actors[index].detailed:
            step.waited_on = self._server(step.operation.alias).waited_for(step.operation.pid)
        step.waited_for = tuple(sorted(set(step.waited_for) | blockers))
        self._waiting[index] = blockers
        self.contended = self.contended or len(self._waiting) > 1

    def _stuck_report(self, unsettled: Collection[int]) -> str:
        lines = [f"A step took longer than {self.step_timeout:g} s without waiting for another actor:"]
        for index in sorted(unsettled):
            step = self._current.get(index)
            doing = f"after {step.operation.template!r}" if step else "before its first statement"
            if step:
                server = self._server(step.operation.alias)
                others = server.blocked([step.operation.pid]).get(step.operation.pid, [])
                doing += "".join(f", waits for {self._owner(pid) or server.session(pid)}" for pid in others)
            lines.append(f"{self.actors[index].name} {doing}, at {self.actors[index].stack()}")
        return "\n".join(lines)

    def _owner(self, pid: int) -> str:
        """Return whose connection it is, if it is an actor's."""
        owned = [(actor.name, hooks) for actor in self.actors for hooks in actor.hooks.values()]
        return "".join(
            f"{name}'s own connection to {hooks.wrapper.alias!r}" for name, hooks in owned if hooks.pid == pid
        )

    # Ends

    def abandon(self) -> None:
        """Unwind every actor that is not done."""
        self._unwinding.unwind(set(self._ready) | set(self._waiting) | self._running)
        self._ready.clear()
        self._waiting.clear()
        self._running.clear()

    def give_up(self) -> str:
        """Unwind the actors; return a sentence on those whose code waits where nobody can reach it, or nothing.

        Their sessions end at once, their threads as soon as what they wait for comes.
        """
        self.abandon()
        return self._unwinding.end_lost_sessions()

    def close(self) -> None:
        """Unwind the actors; leave them to the next exploration, or end their threads and connections."""
        self.give_up()
        if not self._unwinding.forced:
            for actor in self.actors:
                release_actor(actor, database=self._database)
        else:
            self._unwinding.end_all()
