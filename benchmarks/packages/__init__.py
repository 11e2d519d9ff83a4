"""Explores code of other packages, in a project that has them installed.

Their authors should hear of broken verdicts first: the tables only count verdicts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.database import database_url
from benchmarks.suite import FigureTable, Options, Say, Section, select_names

__all__ = ["SUITE"]

_EACH = 15.0
"""Seconds for each second of ``--seconds`` that one case may be explored."""
_START = 60.0
"""Seconds that the process may take for everything else, including the packages' migrations."""

_SUMMARY = """\
Calls of other packages, explored in every interleaving of their SQL statements, in a project that has them installed. \
The verdicts go to standard error; the table only counts them.\
"""


class Packages:
    name = "packages"

    def names(self) -> tuple[str, ...]:
        """Return the names of all cases."""
        from benchmarks.packages.cases import CASES

        return tuple(case.name for case in CASES)

    def seconds(self, options: Options) -> float:
        """Return the maximum time for all selected cases."""
        return _START + _EACH * options.seconds * len(select_names(self.names(), options.only))

    def run(self, options: Options, *, say: Say) -> Section:
        """Explore the cases whose packages are installed."""
        from benchmarks.packages.cases import CASES

        names = select_names(self.names(), options.only)
        missing = sorted({case.package for case in CASES if case.name in names and not case.installed})
        wanted = [case.name for case in CASES if case.name in names and case.installed]
        found = list(_explored(wanted, options, limit=self.seconds(options), say=say)) if wanted else []
        verdicts = Counter(each["verdict"] for each in found)
        return Section(
            suite=self.name,
            summary=_SUMMARY,
            tables=(_table(found, verdicts, missing),),
            data={"cases": [_without_verdict(each) for each in found], "verdicts": verdicts, "missing": missing},
            sound=len(found) == len(wanted) and verdicts.keys() <= {"holds", "broken", "incomplete"},
        )


def _explored(names: Sequence[str], options: Options, *, limit: float, say: Say) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.packages.process", str(_EACH * options.seconds), *names]
    environment = {**os.environ, "DATABASE_URL": database_url()}
    # Another process: the packages need apps and settings that this one has not.
    done = subprocess.run(  # noqa: S603 - a module of ours, in the interpreter at hand
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=limit
    )
    for line in done.stdout.splitlines():
        found: dict[str, Any] = json.loads(line)
        say(f"{found['name']:28} {found['verdict']}: {found['reason']}")
        yield found


def _without_verdict(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key not in {"verdict", "reason"}}


def _table(found: Sequence[dict[str, Any]], verdicts: Counter[str], missing: Sequence[str]) -> FigureTable:
    counted = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
    return FigureTable(
        title="Other packages' code",
        columns=("case", "schedules", "seconds", "schedules/s"),
        rows=tuple(
            (each["name"], each["schedules"], each["seconds"], each["schedules"] / each["seconds"]) for each in found
        ),
        notes=(f"Verdicts: {counted or 'none'}.", *(f"{name} is not installed." for name in missing)),
    )


SUITE = Packages()
