"""A tree of schedules line by line, as pages and drawings show it.

Not nested: templates cannot descend as deep as schedules are long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_lockstep.lab.explorer.results import Exploration
from django_lockstep.lab.explorer.search.tree import Reason, TreeLine

_MOST = 200
"""Schedules of a tree that is shown whole; in larger ones, what ends alike is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One line, or the end of what is below one."""

    kind: Literal["fork", "folded", "run", "cut", "end"]
    """``fork``: lines follow up to its ``end``; ``folded``: several schedules without them."""
    schedule: str = ""
    """All moves up to the line's last one."""
    moves: str = ""
    """Those that the line above it does not have."""
    look: Literal["right", "wrong", "cut"] = "cut"
    """How it is marked: ``right`` or ``wrong`` as its schedules ended, ``cut`` if none was run to its end."""
    text: str = ""
    """What became of the moves, in the language of the page."""
    uniform: bool = True
    """Whether its schedules ended all alike."""


def tree_rows(exploration: Exploration) -> Iterator[TreeRow]:
    """Yield the lines of an exploration's tree, each fork before what it leads to."""
    fold, folded, open_forks = exploration.schedules > _MOST, None, 0
    lines = exploration.tree or ()
    for number, line in enumerate(lines):
        if folded is not None and line.depth > folded:
            continue
        folded = line.depth if fold and line.fork and line.uniform else None
        while open_forks > line.depth:
            open_forks -= 1
            yield TreeRow(kind="end")
        open_forks += line.fork and folded is None
        yield _row(line, exploration, cuts=None if folded is None else _count_cuts(lines, number))
        for cut in line.cuts if folded is None else ():
            moves = cut.schedule[len(line.start) :]
            yield TreeRow(kind="cut", schedule=cut.schedule, moves=moves, text=_why_not_run(cut.reason))
    yield from [TreeRow(kind="end")] * open_forks


def _row(line: TreeLine, exploration: Exploration, *, cuts: int | None) -> TreeRow:
    outcomes = {end + 1: exploration.outcomes[end] for end in line.ends if end is not None}
    right, wrong, title = _("right"), _("wrong"), _("Outcome %(number)s")
    ends = [
        f"{right if outcome.holds else wrong} ({title % {'number': number}})" for number, outcome in outcomes.items()
    ]
    text = ", ".join(ends) or _("abandoned: an equivalent schedule was run")
    if line.fork:
        number = sum(count for end, count in line.ends.items() if end is not None)
        schedules = ngettext("%(number)s schedule", "%(number)s schedules", number)
        text = f"{schedules % {'number': number}}: {text}"
    if cuts:
        branches = ngettext("%(number)s branch not run", "%(number)s branches not run", cuts)
        text = f"{text}; {branches % {'number': cuts}}"
    return TreeRow(
        kind="folded" if cuts is not None else "fork" if line.fork else "run",
        schedule=line.schedule,
        moves=line.moves,
        look="cut" if not outcomes else "right" if all(outcome.holds for outcome in outcomes.values()) else "wrong",
        text=text,
        uniform=line.uniform,
    )


def _why_not_run(reason: Reason) -> str:
    if reason == "asleep":
        return _("not run: an equivalent schedule has this move earlier")
    if reason == "independent":
        return _("not run: this move conflicts with none that it could pass")
    return _("not run: the search ended before")


def _count_cuts(lines: Sequence[TreeLine], number: int) -> int:
    """Return how many branches were cut in a line and below it."""
    rest = itertools.takewhile(lambda line: line.depth > lines[number].depth, lines[number + 1 :])
    return len(lines[number].cuts) + sum(len(line.cuts) for line in rest)
