"""A tree of schedules line by line, as a page nests them: templates cannot descend as deep as schedules are long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from django_lockstep.lab.explorer.results import Exploration, Outcome
from django_lockstep.lab.explorer.tree import Tree

__all__ = ["TreeRow", "tree_rows"]

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


def tree_rows(found: Exploration) -> Iterator[TreeRow]:
    """Yield the lines of an exploration's tree, each fork before what it leads to."""
    if found.tree is not None:
        yield from _rows(found.tree, found, fold=found.schedules > _MOST)


def _rows(tree: Tree, found: Exploration, *, fold: bool) -> Iterator[TreeRow]:
    folded = fold and tree.uniform and bool(tree.ways)
    yield TreeRow(
        kind="folded" if folded else "fork" if tree.ways else "run",
        start=tree.start,
        moves=tree.moves,
        schedules=sum(count for end, count in tree.ends.items() if end is not None),
        cuts=_count_cuts(tree) if folded else 0,
        outcomes={end + 1: found.outcomes[end] for end in tree.ends if end is not None},
        uniform=tree.uniform,
    )
    if folded:
        return
    for cut in tree.cuts:
        yield TreeRow(kind="cut", start=tree.start, moves=cut.schedule[len(tree.start) :], reason=cut.reason)
    for way in tree.ways:
        yield from _rows(way, found, fold=fold)
    if tree.ways:
        yield TreeRow(kind="end")


def _count_cuts(tree: Tree) -> int:
    return len(tree.cuts) + sum(map(_count_cuts, tree.ways))
