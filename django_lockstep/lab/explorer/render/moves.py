"""What pages show of a run: each move, what came of it and which rows are locked then; and of each outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.reports import RaceReport
from django_lockstep.lab.explorer.render.summaries import describe_result, describe_step
from django_lockstep.lab.explorer.render.timelines import actor_title, actors_of, describe_wait
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import localized


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMove:
    """One letter of a schedule."""

    number: int
    """From 1."""
    letter: str
    lane: int
    """The actor's number, from 0."""
    actor: str
    """The actor's name, after its letter if that differs."""
    step: Step | None
    """The statement that it sent; None if it is the end of a wait that was another actor's chance to go on, too."""
    text: str
    """The statement in a few words."""
    result: str
    """What came of the statement, at once or after a wait."""
    wait: str
    """For whom and what the statement waited; empty if it did not."""
    woken: tuple[str, ...]
    """Other actors whose statements ended in this move."""
    held: Mapping[str, Sequence[str]]
    """What each actor has locked after this move, see `Run.held`."""
    seen: Mapping[str, str]
    """The rows that each actor's open transaction sees after this move; by the empty name, those that are committed.

    See `Run.seen`.
    """


def moves_of(run: Run) -> Iterator[ShownMove]:
    """Yield the moves of a run; values are shown of runs that `replay` made, rows and locks where it was asked to."""
    sent = {step.begun: step for step in run.steps}
    letters = sorted(set(run.schedule))
    names = {run.schedule[step.begun]: actor_title(step.actor, run) for step in run.steps}
    for number, letter in enumerate(run.schedule):
        step = sent.get(number)
        locks = [(lock.actor, f"{lock.what} ({lock.strength})") for lock in run.held if lock.move == number]
        held = {actor: [text for holder, text in locks if holder == actor] for actor in actors_of(run)}
        yield ShownMove(
            number=number + 1,
            letter=letter,
            lane=letters.index(letter),
            actor=names.get(letter, letter),
            step=step,
            text=describe_step(step, run) if step else _("goes on first, which the server decides"),
            result=describe_result(step, run) if step else "",
            wait=describe_wait(step) if step and step.waited_for else "",
            woken=tuple(ended.actor for ended in run.steps if ended.begun < number == ended.ended),
            held={actor: texts for actor, texts in held.items() if texts},
            seen=_seen(run, number),
        )


def _seen(run: Run, move: int) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    none = localized(_("no row"))
    for sight in run.seen:
        if sight.move == move:
            rows = "; ".join(", ".join(f"{name}={value}" for name, value in row.items()) for row in sight.rows)
            texts.setdefault(sight.actor, []).append(f"{sight.table}: {rows or none}")
    return {actor_title(actor, run) if actor else "": "\n".join(lines) for actor, lines in texts.items()}


def outcome_cards(report: RaceReport) -> Iterator[dict[str, Any]]:
    """Yield what pages show of each outcome of the report's exploration, the wrong ones first.

    ``serial``: whether the actors one after the other end so, in any order; None if that is not known. ``anomaly`` is
    its name; empty if the outcome is right, or its simplest run was not drawn.
    """
    exploration = report.exploration
    drawn = {run.schedule: run for run in report.runs if not run.holds}
    ends = [(run.state, run.errors, run.results) for run in report.serial]
    for outcome in exploration.outcomes if exploration else ():
        run = drawn.get(outcome.schedule)
        anomaly = find_explanation(run).kind if run else ""
        is_serial = (outcome.state, outcome.errors, outcome.results) in ends
        # Values that differ from run to run would make equal ends look different.
        is_known = is_serial or (ends and exploration and not exploration.not_compared)
        yield {"outcome": outcome, "serial": is_serial if is_known else None, "anomaly": anomaly}
