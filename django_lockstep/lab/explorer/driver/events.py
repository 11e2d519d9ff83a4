"""What the threads of actors report to the controller's, and how that one waits for it."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Literal

from django_lockstep.lab.explorer.effects.operations import Operation

__all__ = ["Event", "next_event"]

Event = tuple[int, Literal["gate", "woken", "done", "look"], Operation | None]
"""What an actor reports: its index, and that it stands at a gate, holds after a wait, is done, or that the controller
has to look where the run is."""


def next_event(events: SimpleQueue[Event], *, timeout: float) -> Event:
    """Return the next event. Raises ``queue.Empty`` if none comes within so many seconds."""
    # Asked without waiting first: mostly the event is there, and a wait begins only on a queue that was found empty.
    try:
        return events.get(block=False)
    except Empty:
        return events.get(timeout=timeout)
