"""The layout of a drawn run: lanes side by side for actors, rows from top to bottom for moves.

Widths are calculated in columns of a fixed-width font, too large rather than too small, so that no text leaves its lane
whatever font the reader has. Text stays out of the gutters above and below each row; arrows stay inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_lockstep.lab.explorer.render.explanations import Explanation, find_explanation
from django_lockstep.lab.explorer.render.summaries import describe_result, describe_step, summarize, truncate, wrap
from django_lockstep.lab.explorer.render.timelines import (
    Fold,
    actor_title,
    actors_of,
    describe_end,
    describe_wait,
    describe_wake,
    find_folds,
    transaction_spans,
)
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import localized

COLUMN = 7.6
"""Pixels of one column at 12 pixels; the widest common fixed-width fonts have 7.3."""
_BOLD_COLUMN = 9
"""The same at 14 pixels, bold."""
LINE = 16
"""Pixels from one line of text to the next."""
PAD = 6
"""Pixels between an edge and what is inside."""
_LEFT, _RIGHT, _GAP = 44, 16, 40
_ABOVE, _BELOW = 16, 16
"""Gutters of a row."""
_HEADER = 84
_LANE_WIDTHS = {1: 560, 2: 400, 3: 340}
_NARROWEST = 310
_KINDS = {"SELECT": "read", **dict.fromkeys(("INSERT", "UPDATE", "DELETE"), "write")}
_KINDS |= dict.fromkeys(("COMMIT", "ROLLBACK"), "end")

Line = tuple[str, str]
"""A line of text, and its CSS class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A statement: what began, how it waited, what ended."""

    step: Step
    classes: str
    """Its CSS classes."""
    lines: Sequence[Line]
    waits: str = ""
    """Text on the wait; empty if it did not wait."""
    tail_lines: Sequence[Line] = ()
    """What stands where a statement that waited ended."""
    folded: Sequence[Step] = ()
    """The statements that the bar stands for, if it is a fold of several."""


class Layout:
    """The positions of everything in the drawing of one run."""

    def __init__(self, run: Run, *, lane_width: int | None = None) -> None:
        self.run = run
        self.actors = actors_of(run)
        self.lane_width = lane_width or _LANE_WIDTHS.get(max(1, len(self.actors)), _NARROWEST)
        self._columns = int((self.lane_width - 4 * PAD) / COLUMN)
        self._most_lines = 2 if lane_width is None else 4  # a narrow lane gets its text in more lines
        why, folds = find_explanation(run), find_folds(run)
        self._hidden = {move for fold in folds.values() for move in fold.moves[1:]}
        shown = [step for step in run.steps if step.begun not in self._hidden]
        self.bars = [self._bar(step, why, folds.get(step.begun)) for step in shown]
        self._tops = self._stacked()

    @property
    def width(self) -> float:
        lanes = max(1, len(self.actors))
        return _LEFT + lanes * self.lane_width + (lanes - 1) * _GAP + _RIGHT

    @property
    def bottom(self) -> float:
        """The lower edge of the last row."""
        return self._tops[-1]

    @property
    def rows(self) -> list[tuple[int, float]]:
        """Each row's number, and its upper edge."""
        tops = enumerate(self._tops[:-1])
        return [(move + 1, top) for move, top in tops if move not in self._hidden]

    def footer(self) -> list[str]:
        """Return how the run ended, in lines of the drawing's width."""
        columns = int((self.width - _LEFT - _RIGHT) / COLUMN)
        return [line for text in describe_end(self.run) for line in wrap(localized(text), columns, most=4)]

    def title(self) -> str:
        """Return the heading, truncated to the drawing's width."""
        return truncate(heading(self.run), int((self.width - 2 * _RIGHT) / _BOLD_COLUMN))

    def name(self, actor: str) -> str:
        """Return the actor's name, truncated to the lane's width."""
        return truncate(actor_title(actor, self.run), int(self.lane_width / _BOLD_COLUMN))

    def lane(self, actor: str) -> float:
        """Return the left edge of the actor's lane."""
        return _LEFT + self.actors.index(actor) * (self.lane_width + _GAP)

    def head(self, bar: Bar) -> Box:
        """Return where the statement began."""
        return self._box(bar.step, bar.step.begun, len(bar.lines))

    def tail(self, bar: Bar) -> Box:
        """Return where a statement that waited ended."""
        return self._box(bar.step, bar.step.ended, len(bar.tail_lines))

    def transactions(self) -> list[Box]:
        """Return the background of each transaction."""
        boxes = []
        for actor in self.actors:
            for begun, ended in transaction_spans(self.run, actor):
                top, bottom = self._tops[begun] + 2, self._tops[ended + 1] - _BELOW / 2
                width = self.lane_width + 2 * PAD
                boxes.append(Box(x=self.lane(actor) - PAD, y=top, width=width, height=bottom - top))
        return boxes

    def above(self, move: int) -> float:
        """Return the height of the arrows to actors woken in the move."""
        return self._tops[move] + _ABOVE - 7

    def below(self, move: int) -> float:
        """Return the height of the arrows from actors that begin to wait in the move."""
        return self._tops[move + 1] - _BELOW + 5

    def _stacked(self) -> list[float]:
        """Return the upper edge of each row, and the lower one of the last."""
        lines = [1] * len(self.run.schedule)
        for bar in self.bars:
            begun, ended = bar.step.begun, bar.step.ended
            lines[begun] = max(lines[begun], len(bar.lines) + (2 if bar.waits else 0))
            lines[ended] = max(lines[ended], len(bar.tail_lines))
        tops = [float(_HEADER)]
        for move, number in enumerate(lines):
            height = 0 if move in self._hidden else _ABOVE + number * LINE + 2 * PAD + _BELOW
            tops.append(tops[-1] + height)
        return tops

    def _bar(self, step: Step, why: Explanation, fold: Fold | None) -> Bar:
        if fold:
            lines = [(line, "faint") for line in wrap(localized(fold.text), self._columns, most=3)]
            return Bar(step=step, classes="step other", lines=lines, folded=fold.steps)
        kind = _KINDS.get(summarize(step).verb, "other")
        classes = f"step {kind}{' error' if step.sqlstate else ''}{' breaking' if step == why.step else ''}"
        begun, end = self._wrapped(describe_step(step, self.run), "said"), list[Line]()
        if result := describe_result(step, self.run):
            end += self._wrapped(f"→ {localized(result)}", "result")
        if step == why.step:
            end.append((truncate(f"▲ {localized(why.mark)}", self._columns), "verdict"))
        if step.ended == step.begun:
            return Bar(step=step, classes=classes, lines=[*begun, *end])
        woken: Line = (truncate(localized(describe_wake(step)), self._columns), "faint")
        waits = truncate(localized(describe_wait(step)), self._columns)
        return Bar(step=step, classes=classes, lines=begun, waits=waits, tail_lines=[woken, *end])

    def _wrapped(self, text: str, kind: str) -> list[Line]:
        return [(line, kind) for line in wrap(text, self._columns, most=self._most_lines)]

    def _box(self, step: Step, move: int, lines: int) -> Box:
        y = self._tops[move] + _ABOVE
        return Box(x=self.lane(step.actor), y=y, width=self.lane_width, height=lines * LINE + 2 * PAD)


def heading(run: Run) -> str:
    """Return the run's title: its schedule, and whether it ended right."""
    end = _("right") if run.holds else _("WRONG")
    return localized(_("Schedule {schedule}: {end}", schedule=run.schedule, end=end))
