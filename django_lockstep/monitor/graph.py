"""The waits as boxes and lines, laid out for a drawing: roots on the left, those who wait for them to the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from django_lockstep.monitor.report import Session, Wait
from django_lockstep.monitor.text import describe_lock, duration, printable, session_name, shortened
from django_lockstep.monitor.trees import Node, trees

BOX_WIDTH, BOX_HEIGHT = 290, 66
_GAP_X, _GAP_Y = 50, 14
_LINE = 18
_LETTERS = 38
"""Letters of the drawing's font that fit into a box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBox:
    """A session; x and y are its upper left corner."""

    session: Session
    x: int
    y: int
    lines: tuple[tuple[int, str], ...]
    """Each with the y of its letters' foot."""
    kind: str
    """``waiting``; of those that hold, ``idle`` for one that runs no statement, ``active`` for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What to draw, in pixels."""

    boxes: tuple[GraphBox, ...]
    lines: tuple[str, ...]
    """SVG paths, each from a waiter to a session that it waits for."""

    @property
    def width(self) -> int:
        return max((box.x + BOX_WIDTH for box in self.boxes), default=0)

    @property
    def height(self) -> int:
        return max((box.y + BOX_HEIGHT for box in self.boxes), default=0)


def waits_graph(waits: Sequence[Wait]) -> Graph:
    """Return the graph; every session has one box, however many it waits for."""
    boxes: list[GraphBox] = []
    nodes: list[Node] = []
    row = 0
    for root in trees(waits):
        for node, depth, below in _walk(root, 0):
            row += below
            x, y = depth * (BOX_WIDTH + _GAP_X), row * (BOX_HEIGHT + _GAP_Y)
            lines = tuple((y + number * _LINE, line) for number, line in enumerate(_lines(node), start=1))
            kind = "waiting" if node.wait else "idle" if node.session.is_idle else "active"
            boxes.append(GraphBox(session=node.session, x=x, y=y, lines=lines, kind=kind))
            nodes.append(node)
        row += 1
    places = {box.session.id: box for box in boxes}
    paths = []
    for node in nodes:
        own = places[node.session.id]
        paths += [_line(places[child.session.id], own) for child in node.children]
        paths += [_line(own, places[blocker.id]) for blocker in node.more_blockers if blocker.id in places]
    return Graph(boxes=tuple(boxes), lines=tuple(paths))


def _walk(node: Node, depth: int, below: int = 0) -> Iterator[tuple[Node, int, int]]:
    """Yield the nodes with their column, and by how many rows each stands below the one before."""
    yield node, depth, below
    for number, child in enumerate(node.children):
        # The first one stands beside its parent.
        yield from _walk(child, depth + 1, int(number > 0))


def _line(waiter: GraphBox, blocker: GraphBox) -> str:
    start_x, start_y = waiter.x, waiter.y + BOX_HEIGHT // 2
    end_x, end_y = blocker.x + BOX_WIDTH, blocker.y + BOX_HEIGHT // 2
    if end_x < start_x:
        middle = start_x - _GAP_X // 2
        return f"M{start_x},{start_y} H{middle} V{end_y} H{end_x + 2}"
    # In a cycle, or for one in the same column: around, on the left.
    return f"M{start_x},{start_y} C{start_x - _GAP_X},{start_y} {blocker.x - _GAP_X},{end_y} {blocker.x - 2},{end_y}"


def _lines(node: Node) -> Iterator[str]:
    session, wait = node.session, node.wait
    if wait is not None:
        details = (_("waits %(time)s for") % {"time": duration(wait.seconds)}, describe_lock(wait))
    else:
        state = session.state or _("state unknown")
        if session.seconds is not None:
            state = _("%(state)s for %(time)s") % {"state": state, "time": duration(session.seconds)}
        details = (state, _("%(number)s behind it") % {"number": node.behind})
    yield from (printable(shortened(line, room=_LETTERS)) for line in (session_name(session), *details))
