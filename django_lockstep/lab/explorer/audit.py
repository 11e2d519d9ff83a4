"""The audit: random walks through the full space beside a reduced search, whose outcomes it must have had as well.

A reduced search leaves out every schedule that only swaps steps which it takes for independent. If it is wrong about
two of them, an outcome is missing, and "holds" may be false. A walk reduces nothing: it chooses any actor that can
move, at each step, and ends in an outcome that the search must know (as Shuttle's random scheduler does, and Hypothesis
checks a model: by asking for one example to the contrary).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.errors import RestartSearch, TooManySteps
from django_lockstep.lab.explorer.oracle import RunResult
from django_lockstep.lab.explorer.retries import follow, learn_differences, play_next
from django_lockstep.lab.explorer.search.branches import Schedule, related
from django_lockstep.lab.explorer.search.schedules import parse_schedule
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.explorer.tally import ExplorationTally, JudgedRun, judge_run
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

_MOST_PAIRS = 3
"""Pairs of steps that a report names."""


@dataclass(slots=True)
class _Node:
    """A state, by the moves that lead to it."""

    after: dict[int, _Node] = field(default_factory=dict)
    """The states to which runs have gone on."""
    enabled: frozenset[int] | None = None
    """Who could move; None as long as no walk was there, empty at the end of a run."""

    @property
    def exhausted(self) -> bool:
        """Whether every schedule through it was run."""
        nodes = [self.after.get(actor) for actor in self.enabled or ()]
        return self.enabled is not None and all(node is not None and node.exhausted for node in nodes)

    def add(self, moves: Sequence[int], enabled: Sequence[Collection[int]] = ()) -> bool:
        """Add a run through these states; return whether it was not known."""
        node, is_new = self, False
        for actor, actors in itertools.zip_longest(moves, enabled):
            if actors is not None:
                node.enabled = frozenset(actors)
            is_new = is_new or actor not in node.after
            node = node.after.setdefault(actor, _Node())
        node.enabled = frozenset()
        return is_new


class RandomWalk(Schedule):
    """Chooses any of the actors that can move, at each step; the same ones again for the same seed.

    As far as it can it goes where not every schedule was run: ``runs`` are those until now.
    """

    def __init__(self, seed: str, *, runs: _Node) -> None:
        self._seed = seed
        self._runs = runs
        self.begin()

    def begin(self) -> None:
        self._random = random.Random(self._seed)
        self._node = self._runs

    def choose(self, enabled: Collection[int]) -> int:
        after = self._node.after
        fresh = [actor for actor in sorted(enabled) if actor not in after or not after[actor].exhausted]
        chosen = self._random.choice(fresh or sorted(enabled))
        self._node = after.get(chosen, _Node())
        return chosen


def audit_search(session: ExplorationSession, tally: ExplorationTally, *, walks: int) -> tuple[JudgedRun, str] | None:
    """Walk through schedules that the search has not run, until so many are found or twice as many were tried.

    Those that have ended as one of its own are counted in the tally. Returns the first other one, with its schedule in
    words and why that was left out. Raises `RestartSearch` if a walk shows something on which the search's footprints
    depend.
    """
    # The same search is audited by the same walks each time: a verdict must not change from run to run.
    seed = f"{len(session.names)} actors, {tally.runs} schedules"
    runs = _Node()
    for schedule in tally.schedules:
        runs.add(parse_schedule(schedule, actors=len(session.names)))
    for number in range(2 * walks):
        out_of_time = tally.deadline is not None and time.monotonic() >= tally.deadline
        if tally.audited == walks or runs.exhausted or out_of_time:
            break
        walk = RandomWalk(f"{seed}, walk {number}", runs=runs)
        traced = _walk(session, walk)
        if traced is None or not runs.add(traced[1].actors, traced[1].enabled):
            continue
        judged = judge_run(session, traced[1], traced[0])
        if judged.key not in tally.ends:
            # What differs when the walk is repeated differs without any race.
            learn_differences(session, traced, follow(session, traced[1].actors))
            return judged, _describe(session, judged, traced[1], seed=f"{seed}, walk {number}")
        tally.audited += 1
    return None


def _walk(session: ExplorationSession, walk: RandomWalk) -> tuple[RunResult, Trace] | None:
    """Return how the walk ended; None for one that did not: it is one of many."""
    try:
        ended, trace = play_next(session, walk, None)
    except TooManySteps:
        session.controller.abandon()
        return None
    if ended is None:
        return None
    if session.learned_facts > trace.learned_facts:
        raise RestartSearch
    return ended, trace


def _describe(session: ExplorationSession, judged: JudgedRun, trace: Trace, *, seed: str) -> str:
    if (run := judged.run) is None:
        raise RuntimeError("a walk that did not end has no outcome")
    pairs = list(itertools.islice(_swapped(trace, session.names), _MOST_PAIRS))
    text = _(
        "The reduction missed an outcome, please report: schedule {schedule} (random walk: {seed}) ends as no schedule "
        "of the reduced search does: {end}.",
        schedule=run.schedule,
        seed=seed,
        end=run.in_words,
    )
    return joined([text, *pairs], " ")


def _swapped(trace: Trace, names: Sequence[str]) -> Iterator[str]:
    """Yield in words the neighbouring moves of different actors whose order was taken not to matter."""
    sent = {step.number: step.operation.template for step in trace.steps}
    for number, (move, after) in enumerate(itertools.pairwise(trace.moves)):
        if not related(move, after):
            first, second = (f"{names[m.actor]}'s {sent.get(i, '')}" for m, i in ((move, number), (after, number + 1)))
            yield _("Taken for independent: {first} | {second}.", first=first, second=second)
