"""Results of checks: plain data, which the formats only render."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CheckResult", "CheckStep", "Location"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A line of source code."""

    path: str
    """Relative to the project's root, or absolute."""
    line: int
    """From 1."""

    @classmethod
    def parse(cls, source: str) -> Location | None:
        """Return the location of a text such as ``shows/booking.py:12``; None for any other text."""
        path, _, line = source.rpartition(":")
        return cls(path=path, line=int(line)) if path and line.isdecimal() and int(line) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One of the steps that lead to what was found."""

    actor: str
    """Who made it."""
    text: str
    """What it does, in a few words."""
    location: Location | None = None
    """The line that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check, such as a race that was explored."""

    name: str
    """What was examined."""
    ok: bool
    """Whether the result is as it should be."""
    kind: str = ""
    """What was found, such as ``lost update``; empty if there is nothing to report."""
    message: str = ""
    """What was found, in a sentence."""
    location: Location | None = None
    """The line where it breaks."""
    details: str = ""
    """Text of several lines, such as a timeline."""
    steps: tuple[CheckStep, ...] = ()
    """The steps that lead to it."""
    suppressed: str = ""
    """Why it is accepted, if it is."""
    skipped: str = ""
    """Why it was not examined, if it was not."""
    seconds: float = 0.0
    """How long it was examined."""
