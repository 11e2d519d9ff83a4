"""Results of checks as SARIF 2.1.0 (OASIS, 2020), as code scanning of GitHub and editors show it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django_lockstep.lab.explorer.render.ci_reports.check_result import CheckResult, CheckStep, Location

__all__ = ["as_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_TOOL = {
    "name": "django-lockstep",
    "informationUri": "https://github.com/django-lockstep/django-lockstep",
}


def as_sarif(checks: Iterable[CheckResult]) -> str:
    """Return one run: a result for each check with something to report, a rule for each kind.

    What is as it should be, such as a race that has to break, is a note, anything else an error. The steps are a thread
    flow for each actor.
    """
    found = [check for check in checks if check.kind]
    kinds = list(dict.fromkeys(check.kind for check in found))
    rules = [{"id": _rule_id(kind), "name": kind, "shortDescription": {"text": kind}} for kind in kinds]
    run = {
        "tool": {"driver": {**_TOOL, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(check, kinds.index(check.kind)) for check in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule_id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(check: CheckResult, rule: int) -> dict[str, Any]:
    result = {
        "ruleId": _rule_id(check.kind),
        "ruleIndex": rule,
        "level": "note" if check.ok else "error",
        "message": {"text": f"{check.name}: {check.message}"},
        # The same race with the same anomaly is the same alert, wherever its lines have moved.
        "partialFingerprints": {"race/v1": f"{check.name}: {check.kind}"},
    }
    if check.suppressed:
        # Not in the source: a file of the project names the place.
        result["suppressions"] = [{"kind": "external", "justification": check.suppressed}]
    if check.location is not None:
        result["locations"] = [_location(check.location)]
    if check.steps:
        result["codeFlows"] = [{"threadFlows": list(_thread_flows(check.steps))}]
    return result


def _thread_flows(steps: Sequence[CheckStep]) -> Iterator[dict[str, Any]]:
    for actor in dict.fromkeys(step.actor for step in steps):
        own = [
            {"executionOrder": order, "location": {**_location(step.location), "message": {"text": step.text}}}
            for order, step in enumerate(steps, start=1)
            if step.actor == actor
        ]
        yield {"id": actor, "locations": own}


def _location(location: Location | None) -> dict[str, Any]:
    if location is None:
        return {}
    absolute = Path(location.path).is_absolute()
    artifact = {"uri": Path(location.path).as_uri()} if absolute else {"uri": quote(Path(location.path).as_posix())}
    # Relative paths are below the root of the checkout.
    artifact |= {} if absolute else {"uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": location.line}}}
