"""What the suite of the simulator measures, on a worker that is this process."""

from decimal import Decimal
from typing import Any

import pytest

from benchmarks.simulator import NOTHING, Inside, InsideLoad, bare, kept, one_task
from django_lockstep.lab.simulator.load_task import LoadTask

LOAD = bare(NOTHING, range(1, 5))


class FakeChannel:
    """Stands for the channel of a worker who is alone."""

    stopping = False

    def wait_at_barrier(self, payload: object = None) -> None:
        pass

    def count_completed(self) -> None:
        pass


def task(load: Any, operations: int) -> LoadTask:
    return one_task(load, worker=0, operations=operations)


def test_what_a_worker_keeps_does_not_grow_with_its_operations() -> None:
    channel: Any = FakeChannel()
    few, many = (kept(task(LOAD, operations), channel) for operations in (3_000, 30_000))
    assert many[0] - few[0] < 64 * 1024  # what ten times the latencies add in buckets; a number each would be 800 KiB
    assert many[1] - few[1] < 16 * 1024


def test_operations_are_counted_as_without_the_clock_inside() -> None:
    channel: Any = FakeChannel()
    plain, timed = task(LOAD, 500)(channel), task(load := InsideLoad(LOAD), 500)(channel)
    assert (timed.succeeded, timed.acknowledged) == (plain.succeeded, plain.acknowledged)
    assert timed.succeeded == 500
    assert load.last is not None
    assert load.last.inside > 0
    assert load.last.between > 0


def test_an_error_inside_is_raised_to_the_counter() -> None:
    class Failing:
        def next_operation(self) -> Any:
            from django_lockstep.lab.simulator.tally import LoadOperation

            return LoadOperation(perform=self.fail, changes=((1, Decimal(1)),))

        def fail(self) -> None:
            raise ZeroDivisionError

    client: Any = Failing()
    operation = Inside(client).next_operation()
    with pytest.raises(ZeroDivisionError):
        operation.perform()
