"""A tree of schedules line by line, as pages and drawings show it.

Not nested: templates cannot descend as deep as schedules are long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_lockstep.lab.explorer.results import Exploration, Outcome
from django_lockstep.lab.explorer.search.tree import TreeLine

_MOST = 200
"""Schedules of a tree that is shown whole; in larger ones, what ends alike is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One line, or the end of what is below one."""

    kind: Literal["fork", "folded", "run", "cut", "end"]
    """``fork``: lines follow up to its ``end``; ``folded``: several schedules without them."""
    start: str = ""
    """Moves that the line has in common with the one above it."""
    moves: str = ""
    reason: str = ""
    """Of a cut branch."""
    schedules: int = 0
    """How many ended in or below this line."""
    cuts: int = 0
    """Branches that were cut below, where these are not shown."""
    outcomes: Mapping[int, Outcome] | None = None
    """How they ended, by number from 1; none if the schedule was abandoned as equivalent to another one."""
    uniform: bool = True
    """Whether they ended all alike."""

    @property
    def schedule(self) -> str:
        return self.start + self.moves

    @property
    def wrong(self) -> bool:
        """Whether one of them ended wrong."""
        return any(not outcome.holds for outcome in (self.outcomes or {}).values())

    @property
    def look(self) -> Literal["right", "wrong", "cut"]:
        """How it is marked: ``right`` or ``wrong`` as its schedules ended, ``cut`` if none was run to its end."""
        return "wrong" if self.wrong else "right" if self.outcomes else "cut"

    @property
    def text(self) -> str:
        """What became of the moves, in the language of the page."""
        if self.kind == "cut":
            return _why_not_run(self.reason)
        ends = ", ".join(_ending(number, outcome) for number, outcome in (self.outcomes or {}).items())
        said = ends or _("abandoned: an equivalent schedule was run")
        if self.kind != "run":
            schedules = ngettext("%(number)s schedule", "%(number)s schedules", self.schedules)
            said = f"{schedules % {'number': self.schedules}}: {said}"
        branches = ngettext("%(number)s branch not run", "%(number)s branches not run", self.cuts)
        return f"{said}; {branches % {'number': self.cuts}}" if self.cuts else said


def _why_not_run(reason: str) -> str:
    if reason == "asleep":
        return _("not run: an equivalent schedule has this move earlier")
    if reason == "independent":
        return _("not run: this move conflicts with none that it could pass")
    return _("not run: the search ended before")


def _ending(number: int, outcome: Outcome) -> str:
    verdict = _("right") if outcome.holds else _("wrong")
    return f"{verdict} ({_('Outcome %(number)s') % {'number': number}})"


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
        if folded is None:
            for cut in line.cuts:
                yield TreeRow(kind="cut", start=line.start, moves=cut.schedule[len(line.start) :], reason=cut.reason)
    yield from [TreeRow(kind="end")] * open_forks


def _row(line: TreeLine, exploration: Exploration, *, cuts: int | None) -> TreeRow:
    return TreeRow(
        kind="folded" if cuts is not None else "fork" if line.fork else "run",
        start=line.start,
        moves=line.moves,
        schedules=sum(count for end, count in line.ends.items() if end is not None),
        cuts=cuts or 0,
        outcomes={end + 1: exploration.outcomes[end] for end in line.ends if end is not None},
        uniform=line.uniform,
    )


def _count_cuts(lines: Sequence[TreeLine], number: int) -> int:
    """Return how many branches were cut in a line and below it."""
    rest = itertools.takewhile(lambda line: line.depth > lines[number].depth, lines[number + 1 :])
    return len(lines[number].cuts) + sum(len(line.cuts) for line in rest)
