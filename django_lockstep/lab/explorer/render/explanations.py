"""Why a run ended wrong, in a sentence: the anomaly's name and the steps that show it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from django_lockstep.lab.explorer.render.anomaly_finders import ANOMALIES, UNSURE, rows_of
from django_lockstep.lab.explorer.render.summaries import summarize
from django_lockstep.lab.explorer.render.visibility import differing, writes, wrong_answers
from django_lockstep.lab.explorer.results import Deadlock, Run, Step
from django_lockstep.lab.explorer.tables.final_state import REMOVED
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

_BLOCKED_BY = re.compile(r"^(.+) waits for .+; blocked by (.+)\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What happened in a run."""

    kind: str
    """The anomaly's name, ``deadlock``, ``constraint violation``, ``no race``, ``unexplained``; empty if the run ended
    right."""
    text: str
    """The sentence, with the name first."""
    step: Step | None = None
    """The step that breaks it."""

    @property
    def mark(self) -> str:
        """The label of that step in timelines."""
        return (
            _("deadlock, ended here") if self.kind == "deadlock" else _("here it breaks: {anomaly}", anomaly=self.kind)
        )


def explain(run: Run) -> str:
    """Return what happened, with the anomaly's name first, or "unexplained"; for runs that `replay` made.

    A run that ended right is not an anomaly: it has a sentence only if it had a deadlock.
    """
    return find_explanation(run).text


@functools.lru_cache(maxsize=4)
def find_explanation(run: Run) -> Explanation:
    """Return what happened, and at which step; see `explain`."""
    anomalies = (
        Explanation(kind=kind, text=_("{anomaly}: {sentence}", anomaly=kind, sentence=sentence), step=step)
        for kind, find in (() if run.holds else ANOMALIES)
        for step, sentence in find(run)
    )
    refused = None if run.holds else next((step for step in run.steps if step.constraint), None)
    tables = differing(run)
    # Where a constraint has kept the rows right, only the error is wrong.
    if refused is not None and 0 < len(run.differences) == len(wrong_answers(run)):
        return _violation(refused)
    if (first := next(anomalies, None)) is not None:
        # That of a table which differs, or before such a one was written, or which is at least changed, before what
        # happened beside it, such as to a session that is not compared.
        led = {step.begun: step.actor for step in writes(run) if summarize(step).table in tables}
        changed = set() if isinstance(run.state, str) else {table.removesuffix(REMOVED) for table in run.state}
        told, before, again = itertools.tee(itertools.chain([first], anomalies) if run.differences else (), 3)
        chosen = _about(tables, told) or _before(led, before) or _about(changed, again) or first
        return first if chosen.kind in UNSURE else chosen
    for deadlock in run.deadlocks:
        return _deadlock(run, deadlock)
    turns = [letter for letter, _moves in itertools.groupby(run.schedule)]
    if not run.holds and len(turns) == len(set(turns)) > 1:  # no actor interrupts another
        text = _(
            "no race is needed: {actors}, one after the other, end so: the invariant, the set-up or the code is wrong",
            actors=", ".join(dict.fromkeys(step.actor for step in run.steps)),
        )
        return Explanation(kind=_("no race"), text=text)
    if refused is not None:
        return _violation(refused)
    kind = "" if run.holds else _("unexplained")
    return Explanation(kind=kind, text=kind)


def _violation(step: Step) -> Explanation:
    change = f"{summarize(step).verb} {summarize(step).table}".rstrip()
    text = _(
        "constraint violation: {constraint} refused {actor}'s {change}",
        constraint=step.constraint,
        actor=step.actor,
        change=change,
    )
    return Explanation(kind=_("constraint violation"), text=text, step=step)


def _before(wrong: Mapping[int, str], explanations: Iterable[Explanation]) -> Explanation | None:
    """Return the first that is about a step before one of these writes of its actor."""

    def leads(step: Step) -> bool:
        return any(actor == step.actor and begun > step.begun for begun, actor in wrong.items())

    return next((it for it in explanations if it.step and leads(it.step)), None)


def _about(tables: Container[str], explanations: Iterable[Explanation]) -> Explanation | None:
    return next((it for it in explanations if it.step and summarize(it.step).table in tables), None)


def _deadlock(run: Run, deadlock: Deadlock) -> Explanation:
    closing = [step for step in run.steps if step.actor == deadlock.victim and step.sqlstate == "40P01"]
    waits = []
    for actor, blocker in _BLOCKED_BY.findall(deadlock.detail):
        waiting = [step for step in run.steps if step.actor == actor and step.waited_for]
        step = next(iter(closing if closing and actor == deadlock.victim else waiting), None)
        if step is None:
            waits.append(_("{actor} waited for {other}", actor=actor, other=blocker))
        else:
            lock = step.waited_on or rows_of(step)
            waits.append(_("{actor} waited for {other} to release {lock}", actor=actor, other=blocker, lock=lock))
    together = _("{actors} waited for each other", actors=", ".join(deadlock.actors))
    text = _(
        "deadlock: {cycle}; the server ended {actor}'s transaction",
        cycle=joined(waits, ", ") if waits else together,
        actor=deadlock.victim,
    )
    return Explanation(kind=_("deadlock"), text=text, step=closing[0] if closing else None)
