"""The README's code, as a reader would paste it."""

import re

from tests.support import pages

_README = pages.ROOT / "README.md"
_SCHEDULE = re.compile(r'race\.replay\("([A-Z]+)"')


def section(title: str) -> str:
    """Return the section with this heading."""
    return _README.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]


def files(text: str) -> list[tuple[str, str]]:
    """Return paths and contents of the code blocks that begin with a path, in their order."""
    return [(step.path, step.text) for step in pages.steps(text) if isinstance(step, pages.File)]


def schedule(text: str) -> str:
    """Return the schedule that the section names."""
    (found,) = set(_SCHEDULE.findall(text))
    return str(found)
