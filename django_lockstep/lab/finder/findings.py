"""Findings: what became of each candidate; plain frozen data, which reports only render."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["CONSEQUENCES", "Finding", "Verdict", "consequence_of", "read_findings", "tables_of"]

Verdict = Literal["confirmed", "not confirmed", "not tried"]
_NUMBER = re.compile(r"(?<!_id )(?<!_id -)\b-?\d+(\.\d+)? instead of -?\d+(\.\d+)?\b")
_ANSWER = re.compile(r"\w+ (returned|raised) (\S+)")
CONSEQUENCES = (
    "numbers lost or doubled",
    "rows doubled or lost",
    "other values",
    "deadlocks",
    "server errors",
    "other answers",
)
"""What a race does to the data, the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one candidate."""

    candidate: str
    """The candidate's id."""
    verdict: Verdict
    """``confirmed`` only if a schedule was run that ends as no serial order does, in what the candidate writes."""
    reason: str
    """Why it was not tried or not confirmed; of a confirmed one, how it ends."""
    pairing: str = ""
    """Which requests were raced, such as ``the request twice``."""
    test: str = ""
    """The test in which they were."""
    number: int = 0
    """Which request of that test it was, from 0."""
    schedules: int = 0
    """Schedules that were run."""
    schedule: str = ""
    """The one that shows it."""
    differences: tuple[str, ...] = ()
    """How it ends, compared with the nearest serial end."""
    consequence: str = ""
    """The worst of these differences, one of `CONSEQUENCES`."""
    remedy: str = ""
    """What was tried against it, and helped."""
    run: Mapping[str, Any] | None = None
    """The schedule's run, as data."""
    seconds: float = 0.0
    """Time that it took."""

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))


def read_findings(path: Path) -> list[Finding]:
    """Return the findings of a file with one in each line; of several on one candidate the last."""
    found = {finding.candidate: finding for finding in map(_parse, _lines(path))}
    return list(found.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        # The last line of a run that was killed may be incomplete.
        if line.endswith("}"):
            yield json.loads(line)


def _parse(data: dict[str, Any]) -> Finding:
    return Finding(**{**data, "differences": tuple(data["differences"])})


def consequence_of(differences: Sequence[str]) -> str:
    """Return the worst of these differences in the words of `CONSEQUENCES`; empty without any."""
    return min(map(_consequence, differences), key=CONSEQUENCES.index, default="")


def _consequence(difference: str) -> str:
    if difference.startswith("Deadlock of "):
        return "deadlocks"
    if found := _ANSWER.match(difference):
        return "server errors" if found[1] == "raised" or found[2].startswith("5") else "other answers"
    if ": one row " in difference:
        return "rows doubled or lost"
    return "numbers lost or doubled" if _NUMBER.search(difference) else "other values"


def tables_of(differences: Iterable[str]) -> set[str]:
    """Return the tables that differ."""
    in_tables = CONSEQUENCES[: CONSEQUENCES.index("deadlocks")]
    return {text.partition(": ")[0].partition(",")[0] for text in differences if _consequence(text) in in_tables}
