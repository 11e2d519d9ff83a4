"""A run as a timeline in plain text: a column for each actor, a line for each event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import set_cell_size

from django_lockstep.lab.explorer.render.explanations import Explanation, find_explanation
from django_lockstep.lab.explorer.render.summaries import (
    clean,
    describe_parts,
    describe_result,
    summarize,
    truncate,
    wrap,
)
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import gettext as _

_WIDTH = 44
_MARGIN = 6
_MOST_LINES = 4
"""Lines that one text may have in its column."""
_LEGEND = "┌│└ transaction   ┆ waits   → result   ▲ where it breaks"


def timeline(run: Run, *, width: int = _WIDTH) -> str:
    """Return the run as text: what each actor sent, read and waited for, and which actor ended the wait.

    ``width`` is each actor's column in characters; see `fitting_width`. Values and rows waited for show in runs that
    `replay` made. In a run of more than 16 steps, those about nothing that matters to another actor are folded into one
    line, and the lines of code stand beside the steps.
    """
    names = actors_of(run)
    lines = [f"schedule {run.schedule}, {'right' if run.holds else 'WRONG'}"]
    lines.append("step  " + "".join(_pad(actor_title(name, run), width) for name in names).rstrip())
    lines.append("----  " + "".join(_pad("-" * (width - 2), width) for _ in names).rstrip())
    lines += _moves(run, names, width)
    sources = [] if is_long(run) else _lines_of_code(run)
    return "\n".join([*lines, "", _LEGEND, *sources, *map(clean, describe_end(run))])


def _moves(run: Run, names: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of each move, or of each fold."""
    why, folds = find_explanation(run), find_folds(run)
    sources = {step.begun: step.source for step in run.steps} if is_long(run) else {}
    hidden = {move for fold in folds.values() for move in fold.moves[1:]}
    for move in (move for move in range(len(run.schedule)) if move not in hidden):
        fold = folds.get(move)
        moves = fold.moves if fold else range(move, move + 1)
        cells = {name: list(_wrap_lines(_cell(run, name, move=move, why=why, fold=fold), width)) for name in names}
        for line in range(max((len(cell) for cell in cells.values()), default=0)):
            number, source = (f"{move + 1:4}", "" if fold else sources.get(move, "")) if line == 0 else ("    ", "")
            yield f"{number}  {_line(run, cells, moves, line, width)}{source}".rstrip()


def fitting_width(columns: int, run: Run) -> int:
    """Return the width of an actor's column in a terminal of so many columns, never too small to read."""
    beside = max((len(step.source) for step in run.steps), default=0) if is_long(run) else 0
    return max(_WIDTH, (columns - _MARGIN - beside) // max(1, len(actors_of(run))))


_LOCK_FIRST = _("lock the row before reading it (select_for_update() in atomic())")
_ONE_SNAPSHOT = _("read it all in one statement, or at REPEATABLE READ")
_REMEDIES = {
    "duplicate insert": _("add a unique constraint, or lock a row that both actors share before looking"),
    "lost update": _("{remedy}, or use one UPDATE: conditions in filter(), the new value with F()", remedy=_LOCK_FIRST),
    "stale read under a lock": _("use the values that the locking SELECT returns, and check them again"),
    "non-repeatable read": _("{remedy}, or {other}", remedy=_LOCK_FIRST, other=_ONE_SNAPSHOT),
    "phantom": _ONE_SNAPSHOT,
    "read skew": _ONE_SNAPSHOT,
    "write skew": _(
        "lock what both actors read, or a row that they share, before reading; or use SERIALIZABLE and retry"
    ),
    "stale check": _(
        "{remedy}, or repeat the condition in the UPDATE and look at the number of rows", remedy=_LOCK_FIRST
    ),
    "atomicity violation": _("write both in one transaction, by one atomic()"),
    "out-of-order commit": _(
        "lock a row that all writers share before the INSERT, so that they commit one after another"
    ),
    "deadlock": _("lock rows in one order everywhere, for example by primary key"),
    "constraint violation": _("handle the IntegrityError, for example by get_or_create()"),
}


def describe_end(run: Run) -> list[str]:
    """Return how the run ended, and why, a text for each thing to say."""
    raised = [_("{actor} raised {error}", actor=name, error=_error(run, name)) for name in run.errors]
    returned = [_("{actor} returned {result}", actor=name, result=result) for name, result in run.results.items()]
    why = find_explanation(run)
    remedy = "" if run.holds else _REMEDIES.get(why.kind, "")
    reasons = [run.reason, why.text, _("To prevent it: {remedy}", remedy=remedy) if remedy else ""]
    return [*raised, *returned, _("end: {state}", state=run.end), *filter(None, reasons)]


def _error(run: Run, name: str) -> str:
    """Return the error's SQLSTATE or class, with its message and line of code if they are known."""
    code, raised = run.errors[name], run.raised.get(name)
    if raised is None:
        return code
    return str(raised) if code == raised.type else f"{code}, {raised}"


def _lines_of_code(run: Run) -> Iterator[str]:
    """Yield for each actor the lines of code that sent its steps."""
    for name in actors_of(run):
        sent: dict[str, list[str]] = {}
        for step in run.steps:
            path, _, line = step.source.rpartition(":")
            if step.actor == name and path:
                sent.setdefault(path, []).append(f"{step.begun + 1} line {line}")
        yield from (f"{name} in {path}: step {', '.join(steps)}" for path, steps in sent.items())


def actor_title(name: str, run: Run) -> str:
    """Return the actor's name, preceded by its letter in schedules if that differs."""
    letter = next(run.schedule[step.begun] for step in run.steps if step.actor == name)
    return name if name == letter else f"{letter}: {name}"


def _wrap_lines(lines: Iterator[str], width: int) -> Iterator[str]:
    """Yield the lines wrapped to the column's width, with hanging indents."""
    for line in lines:
        first, *more = wrap(line, width - 6, most=_MOST_LINES) or [""]
        yield first
        yield from (f"  {text}" for text in more)


def actors_of(run: Run) -> list[str]:
    """Return the names of the actors that sent something, in the order of their letters."""
    letters = {step.actor: letter for step in run.steps for letter in run.schedule[step.begun : step.begun + 1]}
    return sorted(letters, key=lambda name: letters[name])


def transaction_spans(run: Run, actor: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last move of each of the actor's transactions."""
    spans: dict[int, tuple[int, int]] = {}
    for step in run.steps:
        if step.actor == actor and step.transaction is not None:
            begun, ended = spans.get(step.transaction, (step.begun, step.ended))
            spans[step.transaction] = min(begun, step.begun), max(ended, step.ended)
    yield from spans.values()


def describe_wait(step: Step) -> str:
    """Return which actors the step waits for, and for which lock."""
    others = ", ".join(step.waited_for)
    if not step.waited_on:
        return _("waits for {actors}", actors=others)
    return _("waits for {actors} on {lock}", actors=others, lock=step.waited_on)


def describe_wake(step: Step) -> str:
    """Return which other actor ended the step's wait."""
    return _("goes on") if step.woken_by in {None, step.actor} else _("woken by {actor}", actor=step.woken_by)


def _cell(run: Run, actor: str, *, move: int, why: Explanation, fold: Fold | None) -> Iterator[str]:
    """Yield the lines of what one actor did in one move: what was sent, the wait, the result."""
    for step in [step for step in run.steps if step.actor == actor and step.begun <= move <= step.ended][-1:]:
        if fold and step is fold.steps[0]:
            yield fold.text
            return
        if step.begun == move:
            yield from describe_parts(step, run)
        if step.begun == move and (step.waited_for or step.ended != move):
            yield f"┆ {describe_wait(step)}"
        elif step.begun < move == step.ended:
            yield f"┆ {describe_wake(step)}"
        if step.begun < move < step.ended:
            yield "┆"
        result = describe_result(step, run) if step.ended == move else ""
        mark = why.mark if step.ended == move and step == why.step else ""
        yield from (f"{sign} {text}" for sign, text in (("→", result), ("▲", mark)) if text)


def _line(run: Run, cells: Mapping[str, list[str]], moves: range, line: int, width: int) -> str:
    """Return one line of a move, with the edge of each actor's transaction."""
    parts = []
    for name, cell in cells.items():
        text = cell[line] if line < len(cell) else ""
        parts.append(_pad(f"{_edge(run, name, moves, line, len(cell))} {text}", width))
    return "".join(parts)


def _edge(run: Run, name: str, moves: range, line: int, lines: int) -> str:
    for begun, ended in transaction_spans(run, name):
        if begun <= moves[-1] and moves[0] <= ended:
            first, last = begun in moves and line == 0, ended in moves and line >= lines - 1
            if last and line >= lines:
                return " "
            return "┌" if first else "└" if last else "│"
    return " "


def _pad(text: str, width: int) -> str:
    return set_cell_size(truncate(text, width - 2) if text.strip() else "", width)


# What timelines of long runs fold into one line: statements about nothing that matters to another actor.

_LONG = 16
"""Steps of a run that is shown whole."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Consecutive steps of one actor that are shown as one."""

    steps: tuple[Step, ...]

    @property
    def moves(self) -> range:
        """The moves of the steps."""
        return range(self.steps[0].begun, self.steps[-1].begun + 1)

    @property
    def text(self) -> str:
        """How many there are, and what they are about."""
        summaries = map(summarize, self.steps)
        kinds = dict.fromkeys(f"{summary.verb} {summary.table}".rstrip() for summary in summaries)
        return _("{number} more statements: {kinds}", number=len(self.steps), kinds=", ".join(kinds))


def is_long(run: Run) -> bool:
    """Whether the run has too many steps to be shown whole."""
    return len(run.steps) > _LONG


def find_folds(run: Run) -> Mapping[int, Fold]:
    """Return the folds of a long run by their first moves."""
    if not is_long(run):
        return {}
    why = find_explanation(run)
    # A move in which a wait ends is shown even if its own statement is not worth it.
    woken = {step.ended for step in run.steps if step.ended != step.begun}

    def is_foldable(step: Step) -> bool:
        plain = not (step.shared or step.waited_for or step.sqlstate)
        return plain and step != why.step and not woken & {step.begun, step.ended}

    folds = (
        Fold(tuple(steps))
        for (foldable, _), steps in groupby(run.steps, lambda s: (is_foldable(s), s.actor))
        if foldable
    )
    return {fold.moves[0]: fold for fold in folds if len(fold.steps) > 1}
