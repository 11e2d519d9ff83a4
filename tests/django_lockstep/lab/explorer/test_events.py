"""Waiting for what actors report."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from django_lockstep.lab.explorer.driver.trace import Event, next_event

_AT_ONCE = 1e-9
"""Seconds that are over before a wait has begun."""
_TIMES = 20_000
"""Waits: one that misses its time-out would be rare."""
_STALLED = 5
"""Seconds without an end of a wait after which there will be none."""
_REPORTED: Event = (0, "gate", None)
_LATE: Event = (1, "done", None)


def test_a_wait_ends_at_its_time_out_however_short_it_is() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    ended = [0]
    with reports_while_nothing_ends(events, ended):
        for number in range(_TIMES):
            ended[0] = number
            events.put(_REPORTED)
            assert next_event(events, timeout=_AT_ONCE) == _REPORTED
            try:
                event = next_event(events, timeout=_AT_ONCE)
            except Empty:
                continue
            raise AssertionError(f"wait {number} ended with {event} only")


@contextmanager
def reports_while_nothing_ends(events: SimpleQueue[Event], ended: list[int]) -> Iterator[None]:
    """Report an event when no wait has ended for a while, so that the test ends."""
    over = threading.Event()

    def watch() -> None:
        last = -1
        while not over.wait(_STALLED):
            if ended[0] == last:
                events.put(_LATE)
            last = ended[0]

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
