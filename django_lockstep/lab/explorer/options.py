"""The options of `explore`, `replay` and `write_spec`, checked once and passed on as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, get_args

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab.explorer.driver.trace import MAX_STEPS
from django_lockstep.lab.explorer.results import Run

Errors = type[BaseException] | tuple[type[BaseException], ...]
Reduction = Literal["dpor", "none"]

STEP_TIMEOUT = 10.0
"""Seconds that one step may take without waiting for another actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `explore` and its like were asked for. Raises ``ValueError`` for options that exclude each other."""

    database: str = DEFAULT_DB_ALIAS
    database_is_mine: bool = False
    step_timeout: float = STEP_TIMEOUT
    max_steps: int = MAX_STEPS
    ignore: Collection[str] = ()
    raises: Errors = ()
    no_deadlock: bool = False
    warm_up: bool = True
    directed: bool | Collection[str] = False
    reduction: Reduction = "dpor"
    max_schedules: int | None = None
    timeout: float | None = None
    stop_on_first: bool | Callable[[Run], bool] = False
    processes: int = 1
    cluster: str | None = None
    audit: int = 0

    def __post_init__(self) -> None:
        if self.audit < 0:
            raise ValueError(f"audit must be a number of random walks, 0 or more, not {self.audit}")
        if self.processes < 1:
            raise ValueError(f"processes must be a positive integer, not {self.processes}")
        if self.processes > 1 and self.cluster is not None:
            raise ValueError(
                f"processes={self.processes} explore on this machine, and cluster={self.cluster!r} elsewhere: name one"
            )
        if self.reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be {' or '.join(map(repr, get_args(Reduction)))}, not {self.reduction!r}")
        if self.directed:
            self._require_directed()

    def _require_directed(self) -> None:
        if self.reduction != "dpor":
            raise ValueError(
                "A directed search runs only schedules around writes: it cannot be combined with "
                f"reduction={self.reduction!r}"
            )
        if self.processes > 1 or self.cluster is not None:
            place = f"in {self.processes}" if self.cluster is None else f"on a cluster ({self.cluster!r})"
            raise ValueError(f"A directed search has few schedules and runs in one process, not {place}")
