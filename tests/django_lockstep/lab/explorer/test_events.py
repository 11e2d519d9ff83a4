"""Waiting for what actors report."""

from queue import Empty, SimpleQueue

import pytest

from django_lockstep.lab.explorer.driver.trace import Event, next_event

_AT_ONCE = 1e-9
"""Seconds that are over before a wait has begun."""
_TIMES = 20_000
"""Waits: one that misses its time-out, and so ends with that of the test only, would be rare."""
_REPORTED: Event = (0, "gate", None)


def test_a_wait_ends_at_its_time_out_however_short_it_is() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    for _ in range(_TIMES):
        events.put(_REPORTED)
        assert next_event(events, timeout=_AT_ONCE) == _REPORTED
        with pytest.raises(Empty):
            next_event(events, timeout=_AT_ONCE)
