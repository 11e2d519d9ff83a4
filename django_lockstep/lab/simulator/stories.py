"""Stories: one short scenario run many times, and how it ended each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.simulator.audit import AuditStatus
from django_lockstep.lab.simulator.channel import Task, WorkerChannel
from django_lockstep.lab.simulator.report import Report, StrategyRow
from django_lockstep.lab.simulator.tally import kind_of
from django_lockstep.lab.simulator.trials import StrategyTrial

__all__ = ["PASSED", "REFUSED", "Ending", "StoryReport", "StoryRow", "StoryTrial"]

PASSED = "passed"
REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One way in which runs ended."""

    observed: str
    """What the scenario observes."""
    outcomes: Mapping[str, str]
    """What each actor got: "passed", "refused", or the kind of error."""
    broken: bool
    """Whether the invariant does not hold."""
    runs: int
    """How many runs ended so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRow(StrategyRow):
    """One strategy in one story."""

    failure: Literal["lost", "overdrawn"]
    """The status where a run ended as it must not."""
    endings: tuple[Ending, ...]
    """All endings, the most frequent first."""

    @property
    def runs(self) -> int:
        """Runs that were played to the end."""
        return sum(ending.runs for ending in self.endings)

    @property
    def broken(self) -> int:
        """Runs that ended as they must not."""
        return sum(ending.runs for ending in self.endings if ending.broken)

    @property
    def status(self) -> AuditStatus:
        if self.broken:
            return self.failure
        return "correct" if self.endings else "untested"

    @property
    def loss(self) -> str:
        return f"broke the promise in {self.broken:,} of {self.runs:,} runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryReport(Report):
    """One story, played by all strategies."""

    story: str
    """The story's name."""
    text: str
    """What happens, in a sentence."""
    promise: str
    """How it has to end."""
    runs: int
    """How often each strategy was to play it."""
    rows: tuple[StoryRow, ...]
    """The strategies that played it, in the same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorTask:
    """A worker's task: one actor's part of every run."""

    actor: Callable[[Any], Any]
    """What it does."""
    fixtures: tuple[Any, ...]
    """What set-up returned for each run, in order."""
    refusals: tuple[type[Exception], ...]
    """Errors that are an answer."""

    def __call__(self, channel: WorkerChannel) -> None:
        """Start each run together with the other actors, and send its outcome at the next barrier."""
        outcome = None
        for fixture in self.fixtures:
            if channel.stopping:
                break
            # The outcome goes with the next barrier, which needs a message anyway.
            channel.wait_at_barrier(outcome)
            outcome = self._run_actor(fixture)
            channel.count_completed()
        channel.wait_at_barrier(outcome)

    def _run_actor(self, fixture: Any) -> str:
        try:
            self.actor(fixture)
        except self.refusals:
            return REFUSED
        except Exception as error:  # noqa: BLE001 - shown by kind
            return kind_of(error)
        return PASSED


@dataclass(slots=True, kw_only=True)
class StoryTrial(StrategyTrial[StoryRow]):
    """A story under one strategy, which is the label."""

    # All actors take part in every run, so that without one of them no later run can begin.
    needs_all_workers: ClassVar[bool] = True
    safe: bool
    """Whether it claims that the story always ends correctly."""
    scenario: Scenario
    """What happens; the invariant says whether it ended correctly."""
    runs: int
    """How often."""
    refusals: tuple[type[Exception], ...]
    """Errors that are a correct answer, and not a failure."""
    failure: Literal["lost", "overdrawn"]
    """The status of a strategy whose story ended otherwise."""
    fixtures: tuple[Any, ...] = field(default=(), init=False)
    """What set-up returned for each run."""

    def tasks(self, round_number: int) -> list[Task]:
        # All made before the first run: set-up is not part of the race.
        self.fixtures = tuple(self.scenario.set_up() for _ in range(self.runs))
        actors = self.scenario.actors.values()
        return [ActorTask(actor=actor, fixtures=self.fixtures, refusals=self.refusals) for actor in actors]

    def row(self) -> StoryRow | None:
        payloads = [payloads for result in self.results for payloads in result.payloads[: len(self.scenario.actors)]]
        if not any(payloads):
            return None
        endings: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
        # At the first barrier no run has ended yet; a run counts once all actors have sent its outcome.
        for fixture, *outcomes in zip(self.fixtures, *(sent[1:] for sent in payloads), strict=False):
            observed = "" if self.scenario.observe is None else str(self.scenario.observe(fixture))
            endings[observed, tuple(outcomes), bool(self.scenario.objection(fixture))] += 1
        return StoryRow(
            strategy=self.label,
            safe=self.safe,
            failure=self.failure,
            endings=tuple(
                Ending(
                    observed=observed,
                    outcomes=dict(zip(self.scenario.actors, outcomes, strict=True)),
                    broken=broken,
                    runs=count,
                )
                for (observed, outcomes, broken), count in endings.most_common()
            ),
            worker_failures=self.worker_failures,
            cut_short=self.cut_short,
        )
