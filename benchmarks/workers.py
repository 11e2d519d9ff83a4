"""Worker processes for contenders that are Python: started together, each with its own connection, CPU metered."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection

from django_lockstep.lab.simulator.crew import Crew
from django_lockstep.lab.simulator.desk import Desk, idle
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.measure import Load, Shift
from django_lockstep.lab.simulator.tally import Tally
from django_lockstep.lab.simulator.worker import Post

__all__ = ["Metered", "WorkersError", "crew_of", "race", "require_no_errors"]


class WorkersError(Exception):
    """Workers did not come to their end, or their operations failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A worker's task: its shift, with the CPU seconds from the common start to its end."""

    shift: Shift
    """What to do."""

    def __call__(self, desk: Desk) -> tuple[Tally, float]:
        """Do it, and return its tally and the seconds."""
        begun = 0.0
        meet = desk.meet

        def begin(note: object = None) -> None:
            nonlocal begun
            meet(note)
            begun = _cpu_seconds()

        with contextlib.ExitStack() as stack:
            # The shift meets the others after it has warmed up: only from there on its time counts.
            vars(desk)["meet"] = begin
            stack.callback(vars(desk).pop, "meet")
            tally = self.shift(desk)
            return tally, _cpu_seconds() - begun


@contextlib.contextmanager
def crew_of(workers: int) -> Iterator[Crew]:
    """Provide worker processes for the length of a block. Raises ``SimulationError`` if they cannot start."""
    post = Post(alias=DEFAULT_DB_ALIAS, database=connection.settings_dict["NAME"], session="benchmark")
    with Interrupt() as interrupt, Crew(post, workers=workers, interrupt=interrupt) as crew:
        yield crew


def race(crew: Crew, load: Load, *, workers: int, seconds: float) -> tuple[list[Tally], float]:
    """Have so many of the crew do the load; return their tallies and the CPU seconds that they used.

    Raises `WorkersError` where one failed, `KeyboardInterrupt` where somebody asked for the end.
    """
    facts: dict[str, Any] = {"alias": DEFAULT_DB_ALIAS, "seconds": seconds, "operations": None, "think_time": 0.0}
    shifts = [Metered(shift=Shift(load=load, worker=number, **facts)) for number in range(workers)]
    finish = crew.race([*shifts, *[idle] * (len(crew.members) - workers)])
    if crew.interrupt.requested:
        raise KeyboardInterrupt
    if finish.casualties:
        raise WorkersError(str(finish.casualties[0]))
    results = finish.results[:workers]
    return [tally for tally, _ in results], sum(cpu for _, cpu in results)


def require_no_errors(tallies: list[Tally]) -> None:
    """Raise `WorkersError` if some of the operations failed."""
    whole = Tally.merged(tallies)
    if whole.failed:
        kind, count = whole.errors.most_common(1)[0]
        raise WorkersError(
            f"{count} of {whole.failed + whole.succeeded} operations ended with {kind}: {whole.examples[kind]}"
        )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
