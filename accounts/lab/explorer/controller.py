"""Runs one schedule: lets one actor go at a time, and asks the server who is blocked."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from accounts.lab.explorer.crew import Actor, Event
from accounts.lab.explorer.errors import ExplorerError, Nondeterminism, Stuck
from accounts.lab.explorer.footprints import LOCAL, Footprint, dependent
from accounts.lab.explorer.operations import Operation
from accounts.lab.explorer.search import Move
from accounts.lab.explorer.server import Server
from accounts.lab.explorer.transactions import Transaction
from accounts.locking.errors import sqlstate_of

__all__ = ["Begun", "Chooser", "Controller", "Trace"]

_QUICK = 0.0005
"""Seconds after which a step is so slow that the server is asked whether it waits."""
_PAUSE_MAX = 0.01
_UNWIND = 5.0
"""Seconds that an abandoned actor has to unwind."""


class Chooser(Protocol):
    """Decides who moves."""

    def choose(self, enabled: Collection[int]) -> int | None:
        """Return one of the actors that could move, or None to give the run up."""


@dataclass(slots=True, kw_only=True)
class Begun:
    """One step on its way."""

    actor: int
    number: int
    operation: Operation
    ended: int | None = None
    waited_for: tuple[int, ...] = ()
    waited_on: str = ""
    woken_by: int | None = None


@dataclass(slots=True)
class Trace:
    """What one run did."""

    moves: list[Move] = field(default_factory=list)
    enabled: list[tuple[int, ...]] = field(default_factory=list)
    pending: list[dict[int, str]] = field(default_factory=list)
    """The statements that the ready actors stood before, at each move."""
    steps: list[Begun] = field(default_factory=list)
    cycles: list[tuple[frozenset[int], int, str]] = field(default_factory=list)
    """Deadlocks: actors, victim, the server's words."""
    unsteerable: int = 0
    rests: int = 0
    """How often an actor that was refused the same lock twice had to let somebody else go first."""
    complete: bool = True

    @property
    def actors(self) -> list[int]:
        """Who moved at each step."""
        return [move.actor for move in self.moves]

    @property
    def preemptions(self) -> int:
        """How often an actor that could have gone on was interrupted."""
        pairs = zip(self.moves, self.moves[1:], self.enabled[1:], strict=False)
        return sum(before.actor != after.actor and before.actor in enabled for before, after, enabled in pairs)


class Controller:
    """Drives actors through runs; `close` ends their threads."""

    def __init__(
        self, names: Collection[str], *, server: Callable[[str], Server], patience: float, victim: str
    ) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self._last_loses = victim == "last"
        timeout = "60s" if self._last_loses else "50ms"
        settings = f"SET deadlock_timeout = '{timeout}'; SET synchronous_commit = off"
        self.actors = [Actor(index, name, events=self.events, settings=settings) for index, name in enumerate(names)]
        self._server = server
        self._patience = patience
        self._forget()

    def _forget(self) -> None:
        self._ready: dict[int, Operation] = {}
        self._waiting: dict[int, frozenset[int]] = {}
        self._running: set[int] = set()
        self._current: dict[int, Begun] = {}
        self._transactions: dict[tuple[int, str], Transaction] = {}
        self._refused: dict[int, str] = {}
        self._resting: set[int] = set()
        self._trace = Trace()

    # One run

    def run(
        self,
        functions: Collection[Callable[[Any], Any]],
        argument: Any,
        *,
        chooser: Chooser,
        expected: Trace | None = None,
        record: Callable[[Move], None] = lambda move: None,
    ) -> Trace:
        """Run the functions under the chooser's schedule; the trace is incomplete where it gave up.

        ``expected`` is the run before: as long as the moves are the same, the statements have to be, too. Raises
        `Nondeterminism` where they are not, and `Stuck`.
        """
        self._forget()
        for actor, function in zip(self.actors, functions, strict=True):
            actor.start(function, argument)
            self._running.add(actor.index)
            self._settle()
        while self._ready:
            chosen = chooser.choose(self._able())
            if chosen is None:
                self._trace.complete = False
                self.abandon()
                break
            self._note_state(expected)
            move = self._move(chosen)
            self._trace.moves.append(move)
            self._rest(chosen)
            record(move)
        return self._trace

    def _note_state(self, expected: Trace | None) -> None:
        trace = self._trace
        number = len(trace.moves)
        trace.enabled.append(tuple(sorted(self._able())))
        trace.pending.append({actor: self._described(actor) for actor in sorted(self._ready)})
        same_path = expected is not None and expected.actors[:number] == trace.actors
        if same_path and expected is not None and number < len(expected.pending):
            before, now = expected.pending[number], trace.pending[number]
            if before != now:
                raise Nondeterminism(
                    f"After {number} equal moves the actors stood before other statements than the last time.\n"
                    f"Then: {self._listed(before)}\nNow:  {self._listed(now)}"
                )

    def _able(self) -> set[int]:
        """Return who may move: everyone at a gate, but nobody who would only be refused the same lock again."""
        return (self._ready.keys() - self._resting) or set(self._ready)

    def _rest(self, chosen: int) -> None:
        """Let an actor that was refused the same lock twice rest until somebody else has moved.

        Otherwise a loop around NOWAIT would have endless schedules: M. Musuvathi, S. Qadeer, "Fair stateless model
        checking", PLDI 2008.
        """
        operation = self._current[chosen].operation
        self._resting &= {chosen}
        for actor in self._refused.keys() - {chosen}:
            del self._refused[actor]
        if operation.error is not None and sqlstate_of(operation.error) == "55P03":
            if self._refused.get(chosen) == operation.template:
                self._resting.add(chosen)
                self._trace.rests += 1
            self._refused[chosen] = operation.template

    def _described(self, actor: int) -> str:
        operation = self._ready[actor]
        locks = self._transaction(actor, operation).statement(operation)
        return f"{operation.template} {sorted(map(str, locks.reads | locks.writes))}"

    def _listed(self, pending: Mapping[int, str]) -> str:
        return "; ".join(f"{self.actors[actor].name}: {text}" for actor, text in pending.items())

    def _transaction(self, actor: int, operation: Operation) -> Transaction:
        key = (actor, operation.alias)
        if key not in self._transactions:
            self._transactions[key] = Transaction(self._server(operation.alias).catalog)
        return self._transactions[key]

    # One move

    def _move(self, chosen: int) -> Move:
        operation = self._ready.pop(chosen)
        transaction = self._transaction(chosen, operation)
        self._prepare(chosen, operation, transaction)
        number = len(self._trace.moves)
        begun = Begun(actor=chosen, number=number, operation=operation)
        self._trace.steps.append(begun)
        self._current[chosen] = begun
        waiting = set(self._waiting)
        self._running.add(chosen)
        self.actors[chosen].go(self._aside(chosen, operation))
        self._settle()
        return self._made(chosen, number, was_waiting=waiting)

    def _prepare(self, chosen: int, operation: Operation, transaction: Transaction) -> None:
        """Copy what is about to be written for the first time, and note what the session may keep."""
        server = self._server(operation.alias)
        statement = transaction.statement(operation)
        if statement.kind == "UNKNOWN":
            self.actors[chosen].session_changed = True
            server.save(server.catalog.ordinary())
        else:
            server.save(name for table, _ in statement.writes for name in server.catalog.changed_with(table))

    def _aside(self, chosen: int, operation: Operation) -> str | None:
        """Return what makes this actor the victim of the deadlock that its step may close."""
        closes = any(chosen in blockers for blockers in self._waiting.values())
        if not (closes and self._last_loses):
            return None
        # A value that outlived its need would be harmless: whoever waits longer has looked for a cycle already.
        return f"SET {'LOCAL ' if operation.in_transaction else ''}deadlock_timeout = '1ms'"

    def _made(self, chosen: int, number: int, *, was_waiting: set[int]) -> Move:
        touched: Footprint = LOCAL
        woken = set()
        parts = []
        for index, begun in sorted(self._current.items()):
            if index in self._waiting or begun.ended is not None:
                continue
            begun.ended = number
            parts.append(self._transaction(index, begun.operation).footprint(begun.operation))
            self._note_deadlock(index, begun.operation)
            if index in was_waiting:
                woken.add(index)
                begun.woken_by = chosen
        if chosen in self._waiting:
            parts.append(
                self._transaction(chosen, self._current[chosen].operation).waiting(self._current[chosen].operation)
            )
        for part in parts:
            touched = touched | part
        self._note_unsteerable(woken, chosen)
        return Move(
            actor=chosen,
            footprint=touched,
            woken=frozenset(woken - {chosen}),
            waits_for=self._waiting.get(chosen, frozenset()),
            cycle=self._cycle_of(number),
        )

    def _note_unsteerable(self, woken: set[int], chosen: int) -> None:
        prints = [
            self._transaction(index, self._current[index].operation).waiting(self._current[index].operation)
            for index in sorted(woken - {chosen})
        ]
        self._trace.unsteerable += any(
            dependent(one, other) for i, one in enumerate(prints) for other in prints[i + 1 :]
        )

    def _note_deadlock(self, victim: int, operation: Operation) -> None:
        if operation.error is None or sqlstate_of(operation.error) != "40P01":
            return
        driver_error = operation.error if hasattr(operation.error, "diag") else operation.error.__cause__
        detail = getattr(getattr(driver_error, "diag", None), "message_detail", None) or ""
        by_pid = {begun.operation.pid: index for index, begun in self._current.items()}
        cycle = frozenset(by_pid[pid] for pid in map(int, re.findall(r"[Pp]rocess (\d+)", detail)) if pid in by_pid)
        for pid, index in by_pid.items():
            detail = re.sub(rf"\b[Pp]rocess {pid}\b", self.actors[index].name, detail)
        self._trace.cycles.append((cycle | {victim}, victim, detail))

    def _cycle_of(self, number: int) -> frozenset[int]:
        """Return the actors of the deadlocks that ended in this move."""
        ended = {begun.actor for begun in self._current.values() if begun.ended == number}
        found = [cycle for cycle, victim, _ in self._trace.cycles if victim in ended]
        return frozenset().union(*found) if found and number == len(self._trace.moves) else frozenset()

    # Until nobody moves

    def _settle(self) -> None:
        """Return when every actor stands at a gate, is done, or waits for another one according to the server."""
        while True:
            held = self._await_running()
            if not held:
                return
            for index in sorted(held):
                self._waiting.pop(index, None)
                self._running.add(index)
                self.actors[index].go()
                self._await(index)

    def _await(self, index: int) -> None:
        """Let one actor reach its next gate; no SQL is sent on the way."""
        deadline = time.monotonic() + self._patience
        while index in self._running:
            self._take(self._next_event(deadline), held=set())

    def _await_running(self) -> set[int]:
        """Wait for those who move, and return those of the waiting who were woken and hold now."""
        held: set[int] = set()
        deadline = time.monotonic() + self._patience
        pause, patient = _QUICK, bool(self._running)
        while True:
            if self._receive(held, timeout=pause if patient else None):
                patient = bool(self._running)
                continue
            unsettled = self._running | (self._waiting.keys() - held)
            if not unsettled or (self._all_blocked(unsettled) and self.events.empty()):
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
        self._take(event, held=held)
        return True

    def _next_event(self, deadline: float) -> Event:
        try:
            return self.events.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise Stuck(self._stuck_report(self._running)) from None

    def _take(self, event: Event, *, held: set[int]) -> None:
        index, kind, operation = event
        if kind == "woken":
            self._running.discard(index)
            held.add(index)
            return
        self._running.discard(index)
        self._waiting.pop(index, None)
        held.discard(index)
        if kind == "gate" and operation is not None:
            self._ready[index] = operation

    def _all_blocked(self, unsettled: set[int]) -> bool:
        """Whether the server says that all of these wait for other actors, and not in a circle."""
        pids = {begun.operation.pid: index for index, begun in self._current.items() if index in unsettled}
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
        if _has_cycle(waits):
            return False
        for index, blockers in waits.items():
            self._note_wait(index, blockers)
        return True

    def _note_wait(self, index: int, blockers: frozenset[int]) -> None:
        self.actors[index].waits = True
        self._running.discard(index)
        begun = self._current[index]
        if index not in self._waiting and self.actors[index].detailed:
            begun.waited_on = self._server(begun.operation.alias).waited_for(begun.operation.pid)
        begun.waited_for = tuple(sorted(set(begun.waited_for) | blockers))
        self._waiting[index] = blockers

    def _stuck_report(self, unsettled: Collection[int]) -> str:
        lines = [f"A step took longer than {self._patience:g} s without waiting for another actor:"]
        for index in sorted(unsettled):
            begun = self._current.get(index)
            doing = f"after {begun.operation.template!r}" if begun else "before its first statement"
            if begun:
                server = self._server(begun.operation.alias)
                others = server.blocked([begun.operation.pid]).get(begun.operation.pid, [])
                doing += "".join(f", waits for {server.session(pid)}" for pid in others)
            lines.append(f"{self.actors[index].name} {doing}, at {self.actors[index].stack()}")
        return "\n".join(lines)

    # Ends

    def abandon(self) -> list[str]:
        """Unwind every actor that is not done; return the names of those that could not be."""
        unfinished = set(self._ready) | set(self._waiting) | self._running
        for index in unfinished:
            self.actors[index].abandon()
        deadline = time.monotonic() + _UNWIND
        while unfinished and time.monotonic() < deadline:
            try:
                index, kind, _ = self.events.get(timeout=0.02)
            except Empty:
                self._push(unfinished)
                continue
            if kind == "done":
                unfinished.discard(index)
        self._ready.clear()
        self._waiting.clear()
        self._running.clear()
        return [self.actors[index].name for index in sorted(unfinished)]

    def _push(self, unfinished: Collection[int]) -> None:
        """Cancel what the actors do in the server, and interrupt those that are not there."""
        for index in unfinished:
            for alias, hooks in list(self.actors[index].hooks.items()):
                self._server(alias).cancel(hooks.pid)
            self.actors[index].interrupt()

    def close(self) -> None:
        """Unwind the actors, end their threads and connections. Raises `ExplorerError` for threads that stay."""
        stuck = self.abandon()
        for actor in self.actors:
            actor.stop()
        for actor in self.actors:
            if actor.name not in stuck:
                actor.thread.join(_UNWIND)
        alive = [actor.name for actor in self.actors if actor.thread.is_alive()]
        if alive:
            raise ExplorerError(f"The threads of {', '.join(alive)} could not be ended: their code calls out and waits")


def _has_cycle(waits: Mapping[int, frozenset[int]]) -> bool:
    """Whether following who waits for whom leads back to the start."""
    for start in waits:
        reached: set[int] = set()
        todo = set(waits[start])
        while todo:
            index = todo.pop()
            if index == start:
                return True
            if index not in reached:
                reached.add(index)
                todo |= waits.get(index, frozenset())
    return False
