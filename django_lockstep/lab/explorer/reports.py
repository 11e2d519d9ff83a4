"""Explorations as text, JSON and one self-contained HTML page."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.template import Context, Engine
from django.utils.safestring import mark_safe

from django_lockstep.lab.explorer.drawing import svg
from django_lockstep.lab.explorer.drawing.svg import STYLE
from django_lockstep.lab.explorer.errors import ExplorerError
from django_lockstep.lab.explorer.explanations import explain
from django_lockstep.lab.explorer.explore import replay
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run
from django_lockstep.lab.explorer.text_width import counted, truncate
from django_lockstep.lab.explorer.timelines import fitting_width, timeline
from django_lockstep.lab.scenario import Scenario

__all__ = ["FORMATS", "Chapter", "as_html", "as_json", "as_text", "chosen_runs", "run_data", "summary"]

_ROOM = Path(__file__).parents[1]
_MOST_RUNS = 4
_MOST_WAYS = 8
"""Wrong outcomes that a text lists."""
_COLUMNS = 160
"""Of what it says of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """What is told of one race: an exploration, a single run, or both."""

    name: str
    """The race's name."""
    text: str = ""
    """What is raced."""
    exploration: Exploration | None = None
    """What exploring it found; None where one schedule was replayed."""
    runs: tuple[Run, ...] = ()
    """Runs to draw."""
    as_expected: bool = True
    """Whether it came out as it says."""

    def drawings(self) -> Iterator[dict[str, Any]]:
        """Yield what a page shows of each run."""
        for number, run in enumerate(self.runs, start=1):
            picture = svg(run, ident=f"{_slug(self.name)}-{number}", styled=False)
            # The drawing has everything escaped that came from outside.
            yield {"run": run, "svg": mark_safe(picture), "text": timeline(run), "why": explain(run)}  # noqa: S308


def _slug(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)


def chosen_runs(
    scenario: Scenario, exploration: Exploration, *, most: int = _MOST_RUNS, **options: Any
) -> Iterator[Run]:
    """Yield the failure and, replayed, one run for each other outcome, at most so many in all.

    ``options`` are those of `replay`. An outcome that cannot be reached again is left out.
    """
    if exploration.failure is not None:
        yield exploration.failure
    others = [
        out for out in exploration.outcomes if exploration.failure is None or out.state != exploration.failure.state
    ]
    for outcome in others[: max(0, most - (exploration.failure is not None))]:
        try:
            yield replay(scenario, outcome.schedule, **options)
        except ExplorerError:
            continue


def run_data(run: Run) -> dict[str, Any]:
    """Return the run as plain data, with its explanation."""
    return {**run.to_dict(), "explanation": explain(run)}


def as_json(chapters: Sequence[Chapter]) -> str:
    """Return explorations by name; a single replayed run as it is."""
    if len(chapters) == 1 and chapters[0].exploration is None:
        return json.dumps(run_data(chapters[0].runs[0]), indent=2)
    return json.dumps({chapter.name: _data(chapter.exploration) for chapter in chapters}, indent=2)


def _data(found: Exploration | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {**found.to_dict(), "failure": run_data(found.failure) if found.failure else None}


def summary(found: Exploration) -> list[str]:
    """Return what came of exploring in a line, and, where it is broken, a line for each way to end wrong."""
    wrong = [outcome for outcome in found.outcomes if not outcome.holds]
    if found.verdict != "broken":
        return [found.reason, *_compared(found)]
    count, ways = sum(outcome.count for outcome in wrong), counted(len(wrong), "way")
    more = [f"  and {len(wrong) - _MOST_WAYS} more"] if len(wrong) > _MOST_WAYS else []
    return [
        f"{count} of {counted(found.schedules, 'schedule')} end wrong, in {ways}:",
        *map(_way, wrong[:_MOST_WAYS]),
        *more,
        *_compared(found),
    ]


def _compared(found: Exploration) -> list[str]:
    return [f"not compared: {', '.join(found.not_compared)}"] if found.not_compared else []


def _way(outcome: Outcome) -> str:
    raised = [f"{name} raised {error}" for name, error in outcome.errors.items()]
    said = "; ".join([outcome.reason, *raised, f"end: {outcome.end}"])
    return f"  {outcome.count} x {truncate(f'Schedule {outcome.schedule}: {said}', _COLUMNS)}"


def as_text(chapters: Iterable[Chapter], *, columns: int = 0) -> str:
    """Return verdicts, and the timelines of what is wrong, for a terminal of so many columns."""
    return "\n".join(line for chapter in chapters for line in _lines(chapter, columns))


def _lines(chapter: Chapter, columns: int) -> Iterator[str]:
    found = chapter.exploration
    if found is None:
        yield from (timeline(run, width=fitting_width(columns, run)) for run in chapter.runs)
        return
    counts = f"{counted(found.schedules, 'schedule')}, {found.seconds:.2f} s, {found.deadlocks} with deadlocks"
    yield f"{chapter.name}: {found.verdict} ({counts})"
    yield from _compared(found) if found.verdict == "holds" else summary(found)
    if found.failure is not None:
        yield timeline(found.failure, width=fitting_width(columns, found.failure))
    yield from (f"depends on everything: {sentence}" for sentence in found.opaque)


def as_html(chapters: Sequence[Chapter]) -> str:
    """Return one page that needs nothing from outside: verdicts, counts, outcomes, drawings, and the same as text."""
    styles = [STYLE, STYLE.with_name("lab.css")]
    context = {
        "chapters": chapters,
        "unexpected": [chapter.name for chapter in chapters if not chapter.as_expected],
        # Our own files, without anything from outside.
        "style": mark_safe("\n".join(path.read_text(encoding="utf-8") for path in styles)),  # noqa: S308
    }
    return _engine().get_template("lockstep_lab/report.html").render(Context(context))


@functools.cache
def _engine() -> Engine:
    # Our own, so that reports need no template settings of the project.
    return Engine(dirs=[str(_ROOM / "templates")])


FORMATS: Mapping[str, Callable[[Sequence[Chapter]], str]] = {"text": as_text, "json": as_json, "html": as_html}
"""What one text can hold of any number of races."""
