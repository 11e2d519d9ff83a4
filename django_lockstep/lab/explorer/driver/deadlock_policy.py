"""Decides which actor loses a deadlock: the server ends the session whose ``deadlock_timeout`` expires first."""

from __future__ import annotations

from collections.abc import Mapping

# The functions, not the module: in the threads of actors `time` may have a virtual clock.
from time import monotonic, sleep

from django_lockstep.lab.explorer.effects.operations import Operation

__all__ = ["DeadlockPolicy"]

_FIRST_LOSES_MS = 500
"""Milliseconds after which the first actor to wait looks for a cycle, where it is to lose.

A session looks only once: by then the others must have begun the steps that close the cycle, on a busy machine too.
"""
_OTHERS_LOSE = "4s"
"""The time-out of who is not to lose: long after the others have begun to wait, and before a step takes too long.

Two that go on at the same time, each within its statement, may then wait for each other: the first to look loses.
"""
_TIMER_PASSES = 0.005
"""Seconds after which a session with a time-out of 1 ms has looked for a cycle, also on a busy machine."""


class DeadlockPolicy:
    """Sets time-outs of sessions so that the same actor loses each time: the last one to wait, or the first."""

    def __init__(self, *, last_loses: bool) -> None:
        self._last_loses = last_loses
        self.initial_timeout = _OTHERS_LOSE if last_loses else f"{_FIRST_LOSES_MS}ms"
        """The time-out of a session for which no other one waits."""
        self.reset()

    def reset(self) -> None:
        """Forget the waits of the last run."""
        self._short_timeouts: dict[int, float] = {}

    def note_wait(self, index: int) -> None:
        """Note that an actor has begun to wait."""
        if index in self._short_timeouts:
            self._short_timeouts[index] = monotonic()

    def timeout_statement(
        self, chosen: int, operation: Operation, *, waiting: Mapping[int, frozenset[int]]
    ) -> str | None:
        """Return the SET to send before a step that may close a cycle; ``waiting``: the actors that others wait for."""
        # A rollback waits for nobody; a COMMIT may, for a deferred constraint.
        if not waiting or operation.sql.startswith("ROLLBACK"):
            return None
        # Inside a transaction it ends with that, also where the transaction is rolled back; outside of one SET LOCAL
        # has no effect.
        local = "LOCAL " if operation.in_transaction else ""
        if not self._last_loses:  # longer for each later one, so that the order is kept on a busy machine
            return f"SET {local}deadlock_timeout = '{_FIRST_LOSES_MS * (1 + len(waiting))}ms'"
        if not any(chosen in blockers for blockers in waiting.values()):
            return None
        # An actor that already waits with this time-out must have looked before this step, or it might lose instead.
        # Once it has looked, the short time-out does no harm.
        passed = (
            max((self._short_timeouts[index] for index in waiting.keys() & self._short_timeouts), default=0.0)
            + _TIMER_PASSES
        )
        sleep(max(0.0, passed - monotonic()))
        self._short_timeouts[chosen] = monotonic()
        return f"SET {local}deadlock_timeout = '1ms'"
