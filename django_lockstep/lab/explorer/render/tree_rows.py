"""The schedules of an exploration as a tree, line by line, as pages show it.

Not nested: templates cannot descend as deep as schedules are long.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_lockstep.lab.explorer.results import Exploration

_MOST = 200
"""Schedules of a tree that is shown whole; in larger ones, what ends alike is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """Moves without an alternative that was run, up to a fork or to an end; or the end of what is below a fork."""

    kind: Literal["fork", "folded", "run", "end"]
    """``fork``: lines follow up to its ``end``; ``folded``: several schedules without them."""
    schedule: str = ""
    """All moves up to the line's last one."""
    moves: str = ""
    """Those that the line above it does not have; empty if several lines begin at once."""
    look: Literal["right", "wrong"] = "right"
    """How it is marked: as its schedules ended."""
    text: str = ""
    """How they ended, in the language of the page."""
    uniform: bool = True
    """Whether they ended all alike."""


def tree_rows(exploration: Exploration) -> Iterator[TreeRow]:
    """Yield the lines of the tree, each fork before what it leads to."""
    schedules = sorted(exploration.ends)
    # A stack instead of recursion: runs may have more forks than the interpreter has frames. Each group of schedules is
    # a slice, with the number of moves that the line above it has; None is the end of a fork.
    waiting: list[tuple[int, int, int] | None] = [(0, len(schedules), 0)] if schedules else []
    while waiting:
        if (group := waiting.pop()) is None:
            yield TreeRow(kind="end")
            continue
        first, last, above = group
        # They are sorted, so what the outermost two have in common is common to all.
        common = os.path.commonprefix([schedules[first], schedules[last - 1]])  # noqa: RUF071 - by letters
        row = _row(exploration, schedules[first:last], schedule=common, moves=common[above:])
        yield row
        if row.kind == "fork":
            depth = len(common)
            begins = [i for i in range(first, last) if i == first or schedules[i][depth] != schedules[i - 1][depth]]
            waiting.append(None)
            waiting += [(begin, end, depth) for begin, end in zip(begins, [*begins[1:], last], strict=True)][::-1]


def _row(exploration: Exploration, schedules: list[str], *, schedule: str, moves: str) -> TreeRow:
    numbers = sorted({exploration.ends[name] for name in schedules})
    outcomes = [(number + 1, exploration.outcomes[number].holds) for number in numbers]
    right, wrong, title = _("right"), _("wrong"), _("Outcome %(number)s")
    text = ", ".join(f"{right if holds else wrong} ({title % {'number': number}})" for number, holds in outcomes)
    kind: Literal["fork", "folded", "run"] = "run"
    if (count := len(schedules)) > 1:
        kind = "folded" if len(exploration.ends) > _MOST and len(outcomes) == 1 else "fork"
        text = f"{ngettext('%(number)s schedule', '%(number)s schedules', count) % {'number': count}}: {text}"
    return TreeRow(
        kind=kind,
        schedule=schedule,
        moves=moves,
        look="right" if all(holds for _number, holds in outcomes) else "wrong",
        text=text,
        uniform=len(outcomes) == 1,
    )
