"""Stories: one short scenario run many times, and how it ended each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.simulator.channel import WorkerChannel
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.pool import PoolResult, WorkerPool
from django_lockstep.lab.simulator.progress import show_progress
from django_lockstep.lab.simulator.tally import kind_of
from django_lockstep.lab.simulator.trials import ProgressHook
from django_lockstep.lab.simulator.worker_process import WorkerConfig

__all__ = ["PASSED", "REFUSED", "Ending", "StoryReport", "StoryRow", "StoryTrial", "play", "run_stories"]

PASSED = "passed"
REFUSED = "refused"

StoryStatus = Literal["correct", "lost", "overdrawn", "untested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryTrial:
    """A story under one strategy."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims that the story always ends correctly."""
    scenario: Scenario
    """What happens; the invariant says whether it ended correctly."""
    refusals: tuple[type[Exception], ...]
    """Errors that are a correct answer, and not a failure."""
    failure: Literal["lost", "overdrawn"]
    """The status of a strategy whose story ended otherwise."""


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
class StoryRow:
    """One strategy in one story."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims that the story always ends correctly."""
    status: StoryStatus
    """Whether it did."""
    runs: int
    """Rounds that were played to the end."""
    broken: int
    """Rounds that ended as they must not."""
    endings: tuple[Ending, ...]
    """All endings, the most frequent first."""
    worker_failures: tuple[str, ...]
    """Workers that did not finish, and why."""
    cut_short: bool
    """Whether the run was interrupted while this strategy played."""

    @property
    def breaks_promise(self) -> bool:
        """Whether a strategy that claims to be safe was not seen to be."""
        untested = self.status == "untested" and not self.cut_short
        return self.safe and (untested or self.status not in {"correct", "untested"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryReport:
    """One story, played by all strategies."""

    environment: Mapping[str, Any]
    """What it ran on."""
    story: str
    """The story's name."""
    text: str
    """What happens, in a sentence."""
    promise: str
    """How it has to end."""
    runs: int
    """How often each strategy was to play it."""
    planned: tuple[str, ...]
    """The strategies asked for."""
    rows: tuple[StoryRow, ...]
    """The strategies that played it, in the same order."""
    advice: tuple[str, ...]
    """Which one to use, in sentences drawn from the rows."""
    interrupted: str | None = None
    """The signal that ended the run early."""
    notes: tuple[str, ...] = field(default=())
    """What else a reader has to know."""


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


def play(
    trials: Sequence[StoryTrial], worker: WorkerConfig, *, runs: int, interrupt: Interrupt, terminal: TextIO | None
) -> list[StoryRow]:
    """Run a story under each strategy, by worker processes of its own, and return the rows of those that ran."""
    pool = WorkerPool(worker, size=len(trials[0].scenario.actors), interrupt=interrupt)
    with show_progress(terminal, total=len(trials), completed=lambda: pool.completed) as progress, pool:
        return list(run_stories(trials, runs=runs, pool=pool, alias=worker.alias, progress=progress))


def run_stories(
    trials: Sequence[StoryTrial],
    *,
    runs: int,
    pool: WorkerPool,
    alias: str | None,
    progress: ProgressHook | None = None,
) -> Iterator[StoryRow]:
    """Run the story under each strategy in turn and yield its row; stop after one that was interrupted.

    ``alias`` is the database that the workers are connected to, if there is one.
    """
    for trial in trials:
        if pool.interrupt.requested:
            return
        # All made before the first run: set-up is not part of the race.
        fixtures = tuple(trial.scenario.set_up() for _ in range(runs))
        tasks = [
            ActorTask(actor=actor, fixtures=fixtures, refusals=trial.refusals)
            for actor in trial.scenario.actors.values()
        ]
        # All actors take part in every run, so that without one of them no later run can begin.
        result = pool.run(tasks, on_tick=progress(trial.strategy) if progress else None, fail_fast=True)
        if alias is not None:
            end_sessions(alias, [failure.session for failure in result.worker_failures])
        if any(result.payloads):
            yield _build_row(trial, result, fixtures=fixtures, cut_short=pool.interrupt.requested)


def _build_row(trial: StoryTrial, result: PoolResult, *, fixtures: Sequence[Any], cut_short: bool) -> StoryRow:
    # At the first barrier no run has ended yet; a run counts once all actors have sent its outcome.
    ended = list(zip(*(payloads[1:] for payloads in result.payloads), strict=False))
    endings: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
    for fixture, outcomes in zip(fixtures, ended, strict=False):
        kept = not trial.scenario.objection(fixture)
        observed = "" if trial.scenario.observe is None else str(trial.scenario.observe(fixture))
        endings[observed, outcomes, not kept] += 1
    broken = sum(count for (_, _, wrong), count in endings.items() if wrong)
    return StoryRow(
        strategy=trial.strategy,
        safe=trial.safe,
        status="untested" if not ended else trial.failure if broken else "correct",
        runs=len(ended),
        broken=broken,
        endings=tuple(
            Ending(
                observed=observed,
                outcomes=dict(zip(trial.scenario.actors, outcomes, strict=True)),
                broken=wrong,
                runs=count,
            )
            for (observed, outcomes, wrong), count in endings.most_common()
        ),
        worker_failures=tuple(str(failure) for failure in result.worker_failures),
        cut_short=cut_short,
    )
