"""The process that explores the cases: a separate project on its own database."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

import django

__all__ = ["CaseResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of one case."""

    name: str
    """The case's name."""
    verdict: str
    """The explorer's verdict."""
    reason: str
    """The verdict in a sentence."""
    schedules: int
    """Schedules run."""
    seconds: float
    """Time taken."""
    steps: int
    """Statements of the failing run; 0 if there is none."""


def _explored(case: Any, *, timeout: float) -> CaseResult:
    from django_lockstep.lab.explorer import explore

    found = explore(case.build(), timeout=timeout, database_is_mine=True)
    return CaseResult(
        name=case.name,
        verdict=found.verdict,
        reason=found.reason,
        schedules=found.schedules,
        seconds=found.seconds,
        steps=len(found.failure.steps) if found.failure is not None else 0,
    )


def main(timeout: str, *names: str) -> None:
    """Explore the cases of these names, each for at most ``timeout`` seconds; print a line of JSON for each."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.packages.settings"
    django.setup()
    from django.db import connection

    from benchmarks.packages.cases import CASES

    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        for case in CASES:
            if case.name in names:
                found = _explored(case, timeout=float(timeout))
                print(json.dumps(asdict(found)), flush=True)  # noqa: T201 - the answer
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
