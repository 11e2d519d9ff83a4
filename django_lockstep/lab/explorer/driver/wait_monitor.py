"""Waits until no actor moves: each stands at a gate, is done, or waits for another one according to the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.driver.trace import Event, StepRecord, next_event
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.errors import Stuck
from django_lockstep.lab.explorer.search.waits import has_cycle

_QUICK = 0.001
"""Seconds after which a step is so slow that the server is asked whether it waits."""
_PAUSE_MAX = 0.01


@dataclass(slots=True)
class RunState:
    """Where each actor of a run is."""

    ready: dict[int, Operation] = field(default_factory=dict)
    """Actors at a gate, with what they are about to send."""
    running: set[int] = field(default_factory=set)
    """Actors of which an event is to come."""
    waiting: dict[int, frozenset[int]] = field(default_factory=dict)
    """Actors that wait for others according to the server, with these others."""
    held: set[int] = field(default_factory=set)
    """Those of them whose statements have returned, and which hold before they go on."""
    current: dict[int, StepRecord] = field(default_factory=dict)
    """The last step of each actor."""
    contended: bool = False
    """Whether several actors waited at a time, or went on in an order that only the server knows."""


class WaitMonitor:
    """Receives the actors' events, and asks the server which of them wait.

    ``on_wait`` is called when an actor begins to wait.
    """

    def __init__(
        self,
        actors: Sequence[Actor],
        *,
        events: SimpleQueue[Event],
        server: Callable[[str], Server],
        on_wait: Callable[[int], None],
    ) -> None:
        self._actors = actors
        self._events = events
        self._server = server
        self._on_wait = on_wait
        self.step_timeout = 0.0
        self.state = RunState()

    def wait_until_settled(self) -> None:
        """Return when every actor stands at a gate, is done, or waits for another one according to the server."""
        while True:
            self._await_running()
            if not self.state.held:
                return
            # Woken actors go on one after the other, so that what they do next has an order.
            for index in sorted(self.state.held):
                self.state.held.discard(index)
                self.state.waiting.pop(index, None)
                self.state.running.add(index)
                self._actors[index].go()
                self._await_gate(index)

    def _await_gate(self, index: int) -> None:
        """Let one actor reach its next gate; no SQL is sent on the way."""
        deadline = time.monotonic() + self.step_timeout
        while index in self.state.running:
            try:
                event = next_event(self._events, timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise Stuck(self._stuck_report(self.state.running)) from None
            self._handle_event(event)

    def _await_running(self) -> None:
        """Wait for actors that are running; waiting ones that were woken hold then."""
        state = self.state
        pause, deadline = _QUICK, time.monotonic() + self.step_timeout
        # A running actor reports by itself, mostly within the pause. About waiting ones only the server knows.
        patient = bool(state.running)
        while True:
            if self._receive(timeout=pause if patient else 0.0):
                patient = bool(state.running)
                continue
            unsettled = state.running | (state.waiting.keys() - state.held)
            # The queue is looked at after the server's answer: what is in it then may be newer than the answer.
            if not unsettled or (self._all_blocked(unsettled) and self._events.empty()):
                return
            if time.monotonic() > deadline:
                raise Stuck(self._stuck_report(unsettled))
            pause, patient = min(2 * pause, _PAUSE_MAX), True

    def _receive(self, *, timeout: float) -> bool:
        """Handle one event, and return whether there was one within the timeout."""
        try:
            self._handle_event(next_event(self._events, timeout=timeout))
        except Empty:
            return False
        return True

    def _handle_event(self, event: Event) -> None:
        index, kind, operation = event
        if kind == "woken":
            self.state.running.discard(index)
            # Its statement has returned, but the code after it may not run yet: two woken actors would go on at once,
            # and in an order that no schedule describes.
            self.state.held.add(index)
            return
        self.state.running.discard(index)
        self.state.waiting.pop(index, None)
        self.state.held.discard(index)
        if kind == "gate" and operation is not None:
            self.state.ready[index] = operation

    def _all_blocked(self, unsettled: set[int]) -> bool:
        """Whether according to the server all of these wait for other actors, without a cycle."""
        pids = {step.operation.pid: index for index, step in self.state.current.items() if index in unsettled}
        # The server is asked about processes, and an actor without a statement has none.
        if len(pids) < len(unsettled):
            return False  # one has sent nothing yet
        aliases = {self.state.current[index].operation.alias for index in unsettled}
        blocked = self._server(min(aliases)).blocked(list(pids))
        if len(blocked) < len(pids):
            return False
        owners = {hooks.pid: actor.index for actor in self._actors for hooks in actor.hooks.values()}
        # Blocked by a session beside the actors: that is stuck, if it lasts, and not a wait of the race.
        if any(pid not in owners for blockers in blocked.values() for pid in blockers):
            return False
        waits = {pids[pid]: frozenset(owners[blocker] for blocker in blockers) for pid, blockers in blocked.items()}
        if has_cycle(waits):
            return False  # a deadlock, which the server is about to end
        for index, blockers in waits.items():
            self._note_wait(index, blockers)
        return True

    def _note_wait(self, index: int, blockers: frozenset[int]) -> None:
        self._actors[index].waits = True
        self.state.running.discard(index)
        step = self.state.current[index]
        if index not in self.state.waiting:
            self._on_wait(index)
        if index not in self.state.waiting and self._actors[index].detailed:
            step.waited_on = self._server(step.operation.alias).describe_lock(step.operation.pid)
        # One step may wait for several: for the row, and then for the one that has locked its newer version.
        step.waited_for = tuple(sorted(set(step.waited_for) | blockers))
        self.state.waiting[index] = blockers
        self.state.contended = self.state.contended or len(self.state.waiting) > 1

    def _stuck_report(self, unsettled: Collection[int]) -> str:
        actors = []
        for index in sorted(unsettled):
            step = self.state.current.get(index)
            doing = f"after {step.operation.template!r}" if step else "before its first statement"
            if step:
                server = self._server(step.operation.alias)
                others = server.blocked([step.operation.pid]).get(step.operation.pid, [])
                doing += "".join(f", waits for {self._owner(pid) or server.describe_session(pid)}" for pid in others)
            actors.append(f"{self._actors[index].name} {doing}, at {self._actors[index].stack()}")
        text = f"A step took longer than {self.step_timeout:g} s without waiting for another actor"
        return f"{text}: {'; '.join(actors)}"

    def _owner(self, pid: int) -> str:
        """Return a description of the actor's connection; empty if it is not an actor's."""
        owned = [(actor.name, hooks) for actor in self._actors for hooks in actor.hooks.values()]
        return "".join(
            f"{name}'s own connection to {hooks.wrapper.alias!r}" for name, hooks in owned if hooks.pid == pid
        )


# Which actor loses a deadlock: the server ends the session whose deadlock_timeout expires first.

OTHERS_LOSE = "4s"
"""The time-out of who is not to lose: long after the others have begun to wait, and before a step takes too long.

Two that go on at the same time, each within its statement, may then wait for each other: the first to look loses.
"""
_TIMER_PASSES = 0.005
"""Seconds after which a session with a time-out of 1 ms has looked for a cycle, also on a busy machine."""


class DeadlockPolicy:
    """Sets time-outs of sessions so that the last one to wait loses, each time.

    In production it is the first, whose time-out expires first. But each actor of a cycle closes it in some schedule.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the waits of the last run."""
        self._short_timeouts: dict[int, float] = {}

    def note_wait(self, index: int) -> None:
        """Note that an actor has begun to wait."""
        if index in self._short_timeouts:
            self._short_timeouts[index] = time.monotonic()

    def timeout_statement(
        self, chosen: int, operation: Operation, *, waiting: Mapping[int, frozenset[int]]
    ) -> str | None:
        """Return the SET to send before a step that may close a cycle; ``waiting``: the actors that others wait for."""
        # A rollback waits for no other session; a COMMIT may, for a deferred constraint.
        if operation.sql.startswith("ROLLBACK"):
            return None
        if not any(chosen in blockers for blockers in waiting.values()):
            return None
        # An actor that already waits with this time-out must have looked before this step, or it might lose instead.
        # Once it has looked, the short time-out does no harm.
        passed = (
            max((self._short_timeouts[index] for index in waiting.keys() & self._short_timeouts), default=0.0)
            + _TIMER_PASSES
        )
        time.sleep(max(0.0, passed - time.monotonic()))
        self._short_timeouts[chosen] = time.monotonic()
        # Inside a transaction it ends with that, also where the transaction is rolled back; outside of one SET LOCAL
        # has no effect.
        local = "LOCAL " if operation.in_transaction else ""
        return f"SET {local}deadlock_timeout = '1ms'"
