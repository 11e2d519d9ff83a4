"""What the threads of actors report to the controller's, and how that one waits for it."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Literal

from django_lockstep.lab.explorer.operations import Operation

__all__ = ["Event", "next_event"]

Event = tuple[int, Literal["gate", "woken", "done", "look"], Operation | None]
"""What an actor reports: its index, and that it stands at a gate, holds after a wait, is done, or that the controller
has to look where the run is."""


def next_event(events: SimpleQueue[Event], *, timeout: float) -> Event:
    """Return the next event. Raises ``queue.Empty`` if none comes within so many seconds."""
    # Asked without waiting first: the wait is certain to end at its time-out only if the queue was found empty before.
    try:
        return events.get(block=False)
    except Empty:
        return events.get(timeout=timeout)
