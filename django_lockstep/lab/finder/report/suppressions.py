"""Suppressed races: those that a project knows and accepts, in its pyproject.toml.

[[tool.lockstep.races]]
site = "shop/views.py checkout"
reason = "only one cashier"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.errors import NotASuppression

__all__ = ["Suppression", "read_suppressions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A write site whose races are accepted."""

    site: str
    """The path of the file that writes, with the function after a space; or a candidate's id."""
    reason: str

    def covers(self, candidate: Candidate) -> bool:
        """Whether the candidate writes there."""
        site = candidate.write.site
        places = {candidate.id} | ({site.path, f"{site.path} {site.function}"} if site else set())
        return self.site in places


def read_suppressions(root: Path) -> list[Suppression]:
    """Return the suppressions of the project in this folder. Raises `NotASuppression` without site or reason."""
    path = root / "pyproject.toml"
    given = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    entries = given.get("tool", {}).get("lockstep", {}).get("races", [])
    if not isinstance(entries, list):
        raise NotASuppression("races of tool.lockstep in pyproject.toml must be tables [[tool.lockstep.races]]")
    return [_suppression(entry) for entry in entries]


def _suppression(entry: object) -> Suppression:
    if isinstance(entry, dict) and set(entry) == {"site", "reason"} and all(map(_is_text, entry.values())):
        return Suppression(**entry)
    raise NotASuppression(f"an entry of tool.lockstep.races in pyproject.toml must have site and reason, not {entry!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
