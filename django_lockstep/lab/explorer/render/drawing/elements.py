"""Elements of a drawing: well-formed XML whatever their text holds, and the frame that all drawings have."""

from __future__ import annotations

import functools
from pathlib import Path
from xml.etree import ElementTree as ET

from django_lockstep.lab.explorer.render.text_width import clean

__all__ = ["COLUMN", "MARGIN", "STYLE", "add", "start_drawing", "with_style", "write"]

STYLE = Path(__file__).parents[3] / "static" / "lockstep_lab" / "timeline.css"
"""The style sheet, shared with pages that have drawings in them."""
MARGIN = 16
COLUMN = 7.6
"""Pixels of one column at 12 pixels; the widest common fixed-width fonts have 7.3."""


def add(parent: ET.Element, tag: str, **attributes: str | float) -> ET.Element:
    """Add an element; a name that Python reserves has an underscore behind it, empty attributes are left out."""
    named = {
        name.rstrip("_"): f"{value:g}" if not isinstance(value, str) else value for name, value in attributes.items()
    }
    return ET.SubElement(parent, tag, {name: value for name, value in named.items() if value})


def write(parent: ET.Element, x: float, y: float, *, text: str, kind: str) -> None:
    """Add a line of text of this CSS class."""
    add(parent, "text", x=x, y=y, class_=kind).text = clean(text)


def start_drawing(
    width: float, height: float, *, ident: str, title: str, description: str, styled: bool = True
) -> ET.Element:
    """Return a drawing with its title and description, for screen readers; ``styled``: with its style sheet."""
    root = ET.Element("svg")
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": "timeline",
        "viewBox": f"0 0 {width:g} {height:g}",
        "width": f"{width:g}",
        "height": f"{height:g}",
        "role": "img",
        "aria-labelledby": f"{ident}-title {ident}-desc",
    }
    root.attrib.update(attributes)
    add(root, "title", id=f"{ident}-title").text = clean(title)
    add(root, "desc", id=f"{ident}-desc").text = clean(description)
    if styled:
        add(root, "style").text = _style()
    add(root, "rect", class_="paper", width=width, height=height)
    return root


def with_style(drawing: str) -> str:
    """Return a drawing that was made for a page with the style sheet as one that needs no other file."""
    return drawing.replace(">", f"><style>{_style()}</style>", 1)


@functools.cache
def _style() -> str:
    return STYLE.read_text(encoding="utf-8")
