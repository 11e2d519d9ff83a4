"""What the suite of the simulator measures, on a worker that is this process."""

from decimal import Decimal
from typing import Any

import pytest

from benchmarks.simulator import NOTHING, Inside, InsideLoad, bare, kept, one_shift
from django_lockstep.lab.simulator.measure import Shift

LOAD = bare(NOTHING, range(1, 5))


class Desk:
    """Stands for the desk of a worker who is alone."""

    stopping = False

    def meet(self, note: object = None) -> None:
        pass

    def beat(self) -> None:
        pass


def shift(load: Any, operations: int) -> Shift:
    return one_shift(load, worker=0, operations=operations)


def test_what_a_worker_keeps_does_not_grow_with_its_operations() -> None:
    desk: Any = Desk()
    few, many = (kept(shift(LOAD, operations), desk) for operations in (3_000, 30_000))
    assert many[0] - few[0] < 64 * 1024  # what ten times the latencies add in buckets; a number each would be 800 KiB
    assert many[1] - few[1] < 16 * 1024


def test_operations_are_counted_as_without_the_clock_inside() -> None:
    desk: Any = Desk()
    plain, timed = shift(LOAD, 500)(desk), shift(load := InsideLoad(LOAD), 500)(desk)
    assert (timed.succeeded, timed.told) == (plain.succeeded, plain.told)
    assert timed.succeeded == 500
    assert load.last is not None
    assert load.last.inside > 0
    assert load.last.between > 0


def test_an_error_inside_goes_on_to_who_counts_it() -> None:
    class Failing:
        def draw(self) -> Any:
            from django_lockstep.lab.simulator.tally import Operation

            return Operation(perform=self.fail, changes=((1, Decimal(1)),))

        def fail(self) -> None:
            raise ZeroDivisionError

    client: Any = Failing()
    operation = Inside(client).draw()
    with pytest.raises(ZeroDivisionError):
        operation.perform()
