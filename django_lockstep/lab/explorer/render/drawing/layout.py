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
    find_folds,
    transaction_spans,
)
from django_lockstep.lab.explorer.results import Run, Step

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
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A statement: what began, how it waited, what ended."""

    step: Step
    classes: str
    """Its CSS classes."""
    head: Box
    lines: Sequence[Line]
    wait: Box | None = None
    """From where the waiting began to where it ended."""
    tail: Box | None = None
    """Where a statement that waited ended."""
    tail_lines: Sequence[Line] = ()
    waits: Line | None = None
    """Text on the wait."""
    folded: Sequence[Step] = ()
    """The statements that the bar stands for, if it is a fold of several."""


class Layout:
    """The positions of everything in the drawing of one run."""

    def __init__(self, run: Run, *, lane_width: int | None = None) -> None:
        self.run = run
        self.why = find_explanation(run)
        self.actors = actors_of(run)
        self.lane_width = lane_width or _LANE_WIDTHS.get(max(1, len(self.actors)), _NARROWEST)
        self.columns = int((self.lane_width - 4 * PAD) / COLUMN)
        most = 2 if lane_width is None else 4  # a narrow lane gets its text in more lines
        self.texts = {id(step): _Texts(step, run, self.why, self.columns, most=most) for step in run.steps}
        self._folds = find_folds(run)
        self._hidden = {move for fold in self._folds.values() for move in fold.moves[1:]}
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
        return [line for text in describe_end(self.run) for line in wrap(text, columns, most=4)]

    def title(self) -> str:
        """Return the heading, truncated to the drawing's width."""
        return truncate(heading(self.run), int((self.width - 2 * _RIGHT) / _BOLD_COLUMN))

    def name(self, actor: str) -> str:
        """Return the actor's name, truncated to the lane's width."""
        return truncate(actor_title(actor, self.run), int(self.lane_width / _BOLD_COLUMN))

    def lane(self, actor: str) -> float:
        """Return the left edge of the actor's lane."""
        return _LEFT + self.actors.index(actor) * (self.lane_width + _GAP)

    def bars(self) -> list[Bar]:
        return [self._bar(step) for step in self.run.steps if step.begun not in self._hidden]

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
        for step in self.run.steps:
            texts = self.texts[id(step)]
            lines[step.begun] = max(lines[step.begun], len(texts.head) + (2 if texts.waited else 0))
            lines[step.ended] = max(lines[step.ended], len(texts.tail))
        for move, fold in self._folds.items():
            lines[move] = len(self._fold_lines(fold))
        tops = [float(_HEADER)]
        for move, number in enumerate(lines):
            height = 0 if move in self._hidden else _ABOVE + number * LINE + 2 * PAD + _BELOW
            tops.append(tops[-1] + height)
        return tops

    def _fold_lines(self, fold: Fold) -> list[Line]:
        return [(line, "faint") for line in wrap(fold.text, self.columns, most=3)]

    def _bar(self, step: Step) -> Bar:
        if fold := self._folds.get(step.begun):
            lines = self._fold_lines(fold)
            head = self._box(step, self._tops[step.begun] + _ABOVE, len(lines))
            return Bar(step=step, classes="step other", head=head, lines=lines, folded=fold.steps)
        texts = self.texts[id(step)]
        head = self._box(step, self._tops[step.begun] + _ABOVE, len(texts.head))
        tail = self._box(step, self._tops[step.ended] + _ABOVE, len(texts.tail)) if texts.waited else None
        return Bar(
            step=step,
            classes=texts.classes,
            head=head,
            lines=texts.head,
            wait=Box(x=head.x, y=head.bottom, width=head.width, height=tail.y - head.bottom) if tail else None,
            tail=tail,
            tail_lines=texts.tail,
            waits=texts.waits,
        )

    def _box(self, step: Step, y: float, lines: int) -> Box:
        return Box(x=self.lane(step.actor), y=y, width=self.lane_width, height=lines * LINE + 2 * PAD)


class _Texts:
    """The texts on one statement's bar, truncated to the lane."""

    def __init__(self, step: Step, run: Run, why: Explanation, columns: int, *, most: int) -> None:
        self.waited = step.ended > step.begun
        end = self._end(step, run, why, columns, most=most)
        begun: list[Line] = [(line, "said") for line in wrap(describe_step(step, run), columns, most=most)]
        self.head = begun if self.waited else begun + end
        woken = f"woken by {step.woken_by}" if step.woken_by not in {None, step.actor} else "goes on"
        self.tail = [(truncate(woken, columns), "faint"), *end] if self.waited else []
        self.waits: Line = (truncate(describe_wait(step), columns), "faint")
        self.classes = " ".join(["step", *self._kinds(step, why)])

    @staticmethod
    def _end(step: Step, run: Run, why: Explanation, columns: int, *, most: int) -> list[Line]:
        result = describe_result(step, run)
        lines = [(line, "result") for line in wrap(f"→ {result}", columns, most=most)] if result else []
        return [*lines, (truncate(f"▲ {why.mark}", columns), "verdict")] if step is why.step else lines

    @staticmethod
    def _kinds(step: Step, why: Explanation) -> list[str]:
        kind = _KINDS.get(summarize(step).verb, "other")
        return [kind, *["error"] * bool(step.sqlstate), *["breaking"] * (step is why.step)]


def heading(run: Run) -> str:
    """Return the run's title: its schedule, and whether it ended right."""
    return f"Schedule {run.schedule}: {'right' if run.holds else 'WRONG'}"
