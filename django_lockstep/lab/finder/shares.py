"""The time that trying candidates may take, and shares of them, for several processes at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_lockstep.lab.finder.derive.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Share:
    """One of ``count`` shares, numbered from 1; as text ``1/2``."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that the text names. Raises ``ValueError`` for another text."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"a share must be a text such as 1/2, not {text!r}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, candidates: Iterable[Candidate]) -> set[str]:
        """Return the ids of those of the candidates that belong to it; the same in every process.

        A unit's candidates stay together, because one fork shows several of them. The worst are dealt out first.
        """
        ordered = sorted(candidates, key=lambda candidate: (candidate.rank, candidate.id))
        units = list(dict.fromkeys(candidate.unit for candidate in ordered))
        mine = set(units[self.number - 1 :: self.count])
        return {candidate.id for candidate in ordered if candidate.unit in mine}

    def log(self, recording: Path) -> Path:
        """Return the file that has what the share's session prints."""
        name = f"{recording.name}.log" if self.number == 1 else f"{recording.name}.{self.number}.log"
        return recording.with_name(name)

    def separate_test_databases(self) -> None:
        """Give the test databases names that no other share uses; the first one has those of the project."""
        from django.db import connections

        for connection in connections.all():
            test = connection.settings_dict["TEST"]
            name = connection.creation._get_test_db_name()  # type: ignore[attr-defined]
            # SQLite's in memory are those of a process.
            if self.number > 1 and not test["MIRROR"] and "mode=memory" not in name:
                test["NAME"] = f"{name}_races{self.number}"


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_budget(text: str) -> float:
    """Return the seconds of a text such as ``90s`` or ``5m``. Raises ``ValueError`` for another one."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise ValueError(f"a budget must be a time such as 90s, 5m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]
