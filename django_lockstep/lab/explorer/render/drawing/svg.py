"""Draws a laid-out run: well-formed XML whatever the statements hold, the same for the same run, light in print.

Colour is never the only sign: waits are hatched, an arrow with a solid head leads to the actor waited for, a dotted one
to the actor woken, errors are dashed, and the step that breaks is outlined and labelled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from django.utils import translation
from rich.cells import cell_len

from django_lockstep.lab.explorer.render.drawing.layout import LINE, PAD, Bar, Box, Layout, Line, heading
from django_lockstep.lab.explorer.render.summaries import clean, describe_result, describe_step
from django_lockstep.lab.explorer.render.timelines import describe_end, describe_wait
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined, localized

_LEGEND = (
    ("step read", _("reads")),
    ("step write", _("writes")),
    ("step end", _("ends a transaction")),
    ("step other", _("other")),
    ("step error", _("fails")),
    ("transaction", _("transaction")),
    ("wait", _("waits")),
    ("arrow", _("waits for")),
    ("wake", _("wakes")),
)


def svg(
    run: Run,
    *,
    ident: str = "timeline",
    styled: bool = True,
    lane_width: int | None = None,
    language: str | None = "en",
) -> str:
    """Return the run as an SVG drawing.

    ``ident`` begins the ids in it, which have to differ between drawings in one page. Without ``styled`` the page has
    to link the style sheet ``lockstep_lab/timeline.css``, and finds each statement by its ``data-step``, from 1.
    ``lane_width`` is the width of an actor's lane in pixels, by default one that depends on their number. It is in
    English, as files are; on a page in its visitor's ``language``, None for the active one.
    """
    with translation.override(language or translation.get_language()):
        return _Drawing(Layout(run, lane_width=lane_width), ident, numbered=not styled).render(styled=styled)


class _Drawing:
    """Builds the elements of one drawing."""

    def __init__(self, layout: Layout, ident: str, *, numbered: bool) -> None:
        self._layout = layout
        self._ident = ident
        self._numbered = numbered

    def render(self, *, styled: bool) -> str:
        """Return the drawing as text."""
        words = [(kind, localized(word)) for kind, word in _LEGEND]
        legend = list(_positioned(words, self._layout.width))
        footer = self._layout.footer()
        under = self._layout.bottom + 28
        height = under + len(footer) * LINE + 20 + (legend[-1][3] + 1) * 22
        self._root = self._start(height, styled=styled)
        self._lanes()
        for box in self._layout.transactions():
            self._rectangle(self._root, box, "transaction", radius=6)
            write(self._root, box.x + PAD, box.y + 11, text="BEGIN", kind="faint small")
        for bar in self._layout.bars:
            self._bar(bar)
        for step in self._layout.run.steps:
            self._arrows(step)
        for index, line in enumerate(footer):
            write(self._root, MARGIN, under + index * LINE, text=line, kind="prose")
        self._legend(legend, under + len(footer) * LINE + 10)
        return ET.tostring(self._root, encoding="unicode")

    def _start(self, height: float, *, styled: bool) -> ET.Element:
        """Return the drawing with its title and description, for screen readers."""
        layout, ident = self._layout, self._ident
        root = ET.Element("svg")
        attributes = {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "timeline",
            "viewBox": f"0 0 {layout.width:g} {height:g}",
            "width": f"{layout.width:g}",
            "height": f"{height:g}",
            "role": "img",
            "aria-labelledby": f"{ident}-title {ident}-desc",
        }
        root.attrib.update(attributes)
        add(root, "title", id=f"{ident}-title").text = clean(heading(layout.run))
        add(root, "desc", id=f"{ident}-desc").text = clean(_description(layout.run))
        if styled:
            add(root, "style").text = _style()
        add(root, "rect", class_="paper", width=layout.width, height=height)
        pattern = add(
            add(root, "defs"), "pattern", id=f"{ident}-hatch", width=8, height=8, patternUnits="userSpaceOnUse"
        )
        add(pattern, "path", d="M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", class_="hatch")
        write(root, MARGIN, 28, text=layout.title(), kind="head")
        return root

    def _lanes(self) -> None:
        layout = self._layout
        for number, actor in enumerate(layout.actors):
            x = layout.lane(actor)
            # Letters that are wider than calculated must not run into the next lane.
            edge = add(self._root, "clipPath", id=f"{self._ident}-lane-{number}")
            add(edge, "rect", x=x - PAD, y=0, width=layout.lane_width + 2 * PAD, height=layout.bottom)
            write(self._root, x, 62, text=layout.name(actor), kind="head")
            middle = x + layout.lane_width / 2
            add(self._root, "line", class_="lane", x1=middle, y1=70, x2=middle, y2=layout.bottom)
        for number, top in layout.rows:
            add(self._root, "line", class_="row", x1=MARGIN, y1=top, x2=layout.width - MARGIN, y2=top)
            write(self._root, MARGIN, top + 34, text=str(number), kind="faint")

    def _bar(self, bar: Bar) -> None:
        lane = self._layout.actors.index(bar.step.actor)
        group = add(self._root, "g", class_=bar.classes)
        if self._numbered:
            group.set("data-step", str(bar.step.begun + 1))
        group.set("clip-path", f"url(#{self._ident}-lane-{lane})")
        # The whole statements with their parameters, for the tooltip.
        statements = (f"{step.actor}: {step.sql} {step.params}".rstrip() for step in bar.folded or [bar.step])
        add(group, "title").text = clean("; ".join(statements))
        head = self._layout.head(bar)
        if bar.waits:
            tail = self._layout.tail(bar)
            self._wait(group, Box(x=head.x, y=head.bottom, width=head.width, height=tail.y - head.bottom), bar.waits)
            self._rectangle(group, tail, "bar", radius=3)
            self._lines(group, tail, bar.tail_lines)
        self._rectangle(group, head, "bar", radius=3)
        self._lines(group, head, bar.lines)

    def _wait(self, group: ET.Element, box: Box, text: str) -> None:
        self._hatch(group, box)
        chip = Box(x=box.x + PAD, y=box.y + 4, width=box.width - 2 * PAD, height=LINE + 4)
        self._rectangle(group, chip, "chip", radius=3)
        write(group, chip.x + PAD, chip.y + LINE - 1, text=text, kind="faint")

    def _hatch(self, group: ET.Element, box: Box, *, radius: float = 0) -> None:
        self._rectangle(group, box, "wait", radius=radius)
        self._rectangle(group, box, "").set("fill", f"url(#{self._ident}-hatch)")

    def _arrows(self, step: Step) -> None:
        """Draw arrows to the actors waited for, and from the actor that ended the wait."""
        layout = self._layout
        if step.ended == step.begun:
            return
        actors = [actor for actor in step.waited_for if actor in layout.actors and actor != step.actor]
        for index, actor in enumerate(actors):
            self._arrow(step.actor, actor, layout.below(step.begun) + 3 * index, "arrow")
        if step.woken_by in layout.actors and step.woken_by != step.actor:
            self._arrow(str(step.woken_by), step.actor, layout.above(step.ended), "wake")

    def _arrow(self, source: str, target: str, y: float, kind: str) -> None:
        layout, leftwards = self._layout, self._layout.lane(target) < self._layout.lane(source)
        start, end = layout.lane(source), layout.lane(target)
        start, end = (start, end + layout.lane_width) if leftwards else (start + layout.lane_width, end)
        self._head(start, end + (PAD if leftwards else -PAD), y, kind)

    def _head(self, start: float, end: float, y: float, kind: str) -> None:
        back = end + (9 if end < start else -9)
        add(self._root, "path", class_=kind, d=f"M{start:g},{y:g} H{back:g}")
        points = f"M{end:g},{y:g} L{back:g},{y - 4:g} L{back:g},{y + 4:g} Z"
        add(self._root, "path", class_=f"{kind}-head", d=points)

    def _legend(self, items: Sequence[tuple[str, str, float, int]], top: float) -> None:
        for kind, word, x, row in items:
            y = top + row * 22
            if kind in {"arrow", "wake"}:
                self._head(x, x + 20, y + 6, kind)
            else:
                self._sample(Box(x=x, y=y, width=20, height=12), kind)
            write(self._root, x + 26, y + 10, text=word, kind="faint")

    def _sample(self, box: Box, kind: str) -> None:
        group = add(self._root, "g", class_=kind if kind.startswith("step") else "")
        if kind == "wait":
            self._hatch(group, box, radius=2)
        else:
            self._rectangle(group, box, "bar" if kind.startswith("step") else kind, radius=2)

    def _lines(self, group: ET.Element, box: Box, lines: Sequence[Line]) -> None:
        for index, (text, kind) in enumerate(lines):
            write(group, box.x + 2 * PAD, box.y + PAD + 12 + index * LINE, text=text, kind=kind)

    def _rectangle(self, parent: ET.Element, box: Box, kind: str, *, radius: float = 0) -> ET.Element:
        return add(parent, "rect", class_=kind, x=box.x, y=box.y, width=box.width, height=box.height, rx=radius or "")


def _positioned(items: Sequence[tuple[str, str]], width: float) -> Iterator[tuple[str, str, float, int]]:
    """Yield the items with their positions, in as many rows as the width requires."""
    x, row = float(MARGIN), 0
    for kind, word in items:
        needed = 26 + 8 * cell_len(word) + 18
        if x + needed > width - MARGIN and x > MARGIN:
            x, row = float(MARGIN), row + 1
        yield kind, word, x, row
        x += needed


def _description(run: Run) -> str:
    """Return what the drawing shows, for screen readers."""
    parts = []
    for step in run.steps:
        said = [describe_step(step, run)]
        if step.ended > step.begun:
            said += [describe_wait(step), _("until step {number}", number=step.ended + 1)]
        said += filter(None, [describe_result(step, run)])
        parts.append(
            _("Step {number}, {actor}: {text}", number=step.begun + 1, actor=step.actor, text=joined(said, ", "))
        )
    return " ".join(f"{localized(text)}." for text in [*parts, *describe_end(run)])


STYLE = Path(__file__).parents[3] / "static" / "lockstep_lab" / "timeline.css"
"""The style sheet, shared with pages that have drawings in them."""
MARGIN = 16


def add(parent: ET.Element, tag: str, **attributes: str | float) -> ET.Element:
    """Add an element; a name that Python reserves has an underscore behind it, empty attributes are left out."""
    named = {
        name.rstrip("_"): f"{value:g}" if not isinstance(value, str) else value for name, value in attributes.items()
    }
    return ET.SubElement(parent, tag, {name: value for name, value in named.items() if value})


def write(parent: ET.Element, x: float, y: float, *, text: str, kind: str) -> None:
    """Add a line of text of this CSS class."""
    add(parent, "text", x=x, y=y, class_=kind).text = clean(text)


def with_style(drawing: str) -> str:
    """Return a drawing that was made for a page with the style sheet as one that needs no other file."""
    return drawing.replace(">", f"><style>{_style()}</style>", 1)


@functools.cache
def _style() -> str:
    return STYLE.read_text(encoding="utf-8")
