"""Stories: one short race many times over, and how it ended each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.simulator.crew import Crew, Finish
from django_lockstep.lab.simulator.database import end_sessions
from django_lockstep.lab.simulator.desk import Desk
from django_lockstep.lab.simulator.race import Watch
from django_lockstep.lab.simulator.tally import kind_of

__all__ = ["PASSED", "REFUSED", "Cast", "Ending", "StoryReport", "StoryRow", "tell"]

PASSED = "passed"
REFUSED = "refused"

StoryStatus = Literal["correct", "lost", "overdrawn", "untested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A story as one strategy plays it."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims to end well."""
    scenario: Scenario
    """What happens; the invariant says whether it ended well."""
    refusals: tuple[type[Exception], ...]
    """Errors that are an answer, and no failure."""
    failure: Literal["lost", "overdrawn"]
    """What it means when it does not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One way in which rounds ended."""

    observed: str
    """What the scenario observes."""
    outcomes: Mapping[str, str]
    """What each actor was told: "passed", "refused", or the kind of error."""
    broken: bool
    """Whether this is an ending that must not be."""
    rounds: int
    """How many rounds ended so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryRow:
    """One strategy in one story."""

    strategy: str
    """Its name."""
    safe: bool
    """Whether it claims to end well."""
    status: StoryStatus
    """Whether it did."""
    rounds: int
    """Rounds that were played to the end."""
    broken: int
    """Rounds that ended as they must not."""
    endings: tuple[Ending, ...]
    """All endings, the most frequent first."""
    casualties: tuple[str, ...]
    """Workers that did not come to an end, and why."""
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
    """What happens."""
    promise: str
    """How it has to end."""
    rounds: int
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
class Turns:
    """A worker's task: one actor's part of every round."""

    actor: Callable[[Any], Any]
    """What it does."""
    stages: tuple[Any, ...]
    """What set-up returned for each round."""
    refusals: tuple[type[Exception], ...]
    """Errors that are an answer."""

    def __call__(self, desk: Desk) -> None:
        """Play each round after meeting the others, and tell them at the next meeting how it went."""
        outcome = None
        for stage in self.stages:
            if desk.stopping:
                break
            desk.meet(outcome)
            outcome = self._play(stage)
            desk.beat()
        desk.meet(outcome)

    def _play(self, stage: Any) -> str:
        try:
            self.actor(stage)
        except self.refusals:
            return REFUSED
        except Exception as error:  # noqa: BLE001 - shown by kind
            return kind_of(error)
        return PASSED


def tell(
    casts: Sequence[Cast], *, rounds: int, crew: Crew, alias: str, watch: Watch | None = None
) -> Iterator[StoryRow]:
    """Yield each strategy's row; stop after the one in which the crew was interrupted."""
    for cast in casts:
        if crew.interrupt.requested:
            return
        stages = tuple(cast.scenario.set_up() for _ in range(rounds))
        tasks = [Turns(actor=actor, stages=stages, refusals=cast.refusals) for actor in cast.scenario.actors.values()]
        finish = crew.race(tasks, watch=watch(cast.strategy) if watch else None, inseparable=True)
        end_sessions(alias, [casualty.session for casualty in finish.casualties])
        if any(finish.notes):
            yield _row_of(cast, finish, stages=stages, cut_short=crew.interrupt.requested)


def _row_of(cast: Cast, finish: Finish, *, stages: Sequence[Any], cut_short: bool) -> StoryRow:
    # The first meeting has nothing to tell yet; a round counts when all have told how it went.
    told = list(zip(*(notes[1:] for notes in finish.notes), strict=False))
    endings: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
    for stage, outcomes in zip(stages, told, strict=False):
        kept = not cast.scenario.objection(stage)
        observed = "" if cast.scenario.observe is None else str(cast.scenario.observe(stage))
        endings[observed, outcomes, not kept] += 1
    broken = sum(count for (_, _, wrong), count in endings.items() if wrong)
    return StoryRow(
        strategy=cast.strategy,
        safe=cast.safe,
        status="untested" if not told else cast.failure if broken else "correct",
        rounds=len(told),
        broken=broken,
        endings=tuple(
            Ending(
                observed=observed,
                outcomes=dict(zip(cast.scenario.actors, outcomes, strict=True)),
                broken=wrong,
                rounds=count,
            )
            for (observed, outcomes, wrong), count in endings.most_common()
        ),
        casualties=tuple(str(casualty) for casualty in finish.casualties),
        cut_short=cut_short,
    )
