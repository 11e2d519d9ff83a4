"""The report as data: each candidate with what became of it, and the confirmed ones by cause, the worst first."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from django_lockstep.lab.finder.consequences import consequence_sentence
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import MORE_LEFT, VERDICTS, Finding, Findings
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined, listed, ngettext, parts_of

MOST_UNITS = 4
"""Requests, functions and tests that are named in a row."""
_CONFIRMED, *_OTHERS = VERDICTS
STATUSES = (_CONFIRMED, "suppressed", *_OTHERS)
"""The verdicts; a race that is confirmed and accepted counts as suppressed."""
NOTHING_TRIED = 11
"""pytest's exit status if nothing was looked at; 2 to 5 are its own, 10 is a missed outcome's."""
NOT_DECIDED = 12
"""pytest's exit status if no race is confirmed, and a further search may confirm one."""
_IF_SOME = {"suppressed", "not decided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What has one cause: confirmed candidates that go wrong by one line, or in one schedule."""

    title: str
    """The worst consequence, in a sentence."""
    findings: tuple[Finding, ...]
    """The worst first."""

    @property
    def worst(self) -> Finding:
        """The candidate whose schedule is shown."""
        return self.findings[0]

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the requests and functions that reach it."""
        return tuple(dict.fromkeys(finding.candidate.unit for finding in self.findings))

    @property
    def reached_by(self) -> str:
        """The first of them, and how many more there are."""
        return listed(self.units, most=MOST_UNITS)

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it."""
        return tuple(dict.fromkeys(test for finding in self.findings for test in finding.candidate.tests))


class Report:
    """All that is known about a recording: each candidate with what became of it."""

    def __init__(self, store: Findings, suppressions: Mapping[str, str], *, root: Path) -> None:
        """``root`` is the project's folder, ``suppressions`` as of `read_suppressions`."""
        results = {finding.candidate.id: finding for finding in store.in_order()}
        rest = (
            Finding(candidate=candidate, verdict="not tried", reason=_("nothing was tried yet"))
            for name, candidate in store.candidates.items()
            if name not in results
        )
        findings = [_suppressed(finding, suppressions) for finding in (*results.values(), *rest)]
        self.root = root
        self.store = store
        self.tried = bool(results)
        """Whether something was tried; otherwise the candidates are only listed."""
        self.findings = sorted(findings, key=lambda finding: STATUSES.index(finding.status))

    def counts(self) -> dict[str, int]:
        """Return how many have each status; suppressed and undecided ones only if there are some."""
        counts = {status: sum(finding.status == status for finding in self.findings) for status in STATUSES}
        return {status: count for status, count in counts.items() if count or status not in _IF_SOME}

    def races(self) -> tuple[Race, ...]:
        """Return the confirmed candidates by cause, the worst first, those that are accepted last."""
        groups: dict[int, list[Finding]] = {}
        numbers: dict[object, int] = {}
        for finding in (finding for finding in self.findings if finding.verdict == _CONFIRMED):
            keys = (
                (finding.fault, finding.suppressed),
                (finding.test, finding.schedule, finding.differences, finding.suppressed),
            )
            number = next((numbers[key] for key in keys if key in numbers), len(groups))
            numbers |= dict.fromkeys(keys, number)
            groups.setdefault(number, []).append(finding)
        races = []
        for worst, *others in groups.values():
            races.append(Race(title=title_of(worst, self.store.models), findings=(worst, *others)))
        return tuple(races)

    def rest(self) -> dict[str, dict[str, list[Finding]]]:
        """Return the other candidates by verdict, and by what could be tried yet, or why there is nothing to find.

        First what a larger budget or another test may change; a candidate that several things kept from being raced
        stands under each of them.
        """
        rest: dict[str, dict[str, list[Finding]]] = {}
        for verdict in ("not tried", "not decided", "not confirmed"):
            reasons: dict[str, list[Finding]] = {}
            for finding in (finding for finding in self.findings if finding.verdict == verdict):
                for reason in _reasons(finding):
                    reasons.setdefault(reason, []).append(finding)
            if reasons:
                rest[verdict] = dict(sorted(reasons.items(), key=lambda pair: -len(pair[1])))
        return rest

    @property
    def is_untried(self) -> bool:
        """Whether nothing was recorded, or a search has tried none of the candidates."""
        verdicts = {finding.verdict for finding in self.findings}
        return self.store.is_empty or (self.tried and verdicts == {"not tried"})

    @property
    def obstacle(self) -> str:
        """What was not looked at, in a line; empty if a further search of these candidates finds no more."""
        if self.store.is_empty:
            nothing = _("NOTHING WAS LOOKED AT: nothing that a test writes was recorded.")
            return joined([nothing, *self.store.notes], " ")
        candidates = ngettext("{number} candidate", "{number} candidates", len(self.findings))
        if self.is_untried:
            ((reason, _count),) = Counter(finding.reason for finding in self.findings).most_common(1)
            return _(
                "NOTHING WAS LOOKED AT: none of {candidates} was tried: {reason}", candidates=candidates, reason=reason
            )
        left = sum(finding.is_left for finding in self.findings)
        if not left:
            return ""
        return _(
            "NOT ALL WAS LOOKED AT: {number} of {candidates} left for a longer search",
            number=left,
            candidates=candidates,
        )

    @property
    def exit_status(self) -> int:
        """1 if a race is confirmed that the project does not accept, `NOTHING_TRIED`, `NOT_DECIDED`, or 0."""
        if any(finding.status == "confirmed" for finding in self.findings):
            return 1
        if self.is_untried:
            return NOTHING_TRIED
        return NOT_DECIDED if self.obstacle else 0


def title_of(finding: Finding, models: Mapping[str, str]) -> str:
    """Return what a confirmed candidate does as a sentence; ``models`` are by table."""
    # Beyond a limit, equal rows are not what is wrong.
    kind = "" if finding.against == "a lower limit" else finding.candidate.kind
    return consequence_sentence(finding.differences, kind=kind, table=finding.candidate.table, models=models)


def _reasons(finding: Finding) -> Iterable[str]:
    if finding.verdict == "not decided":
        return [MORE_LEFT]
    # The names of both requests, which a pairing with another test begins with, would keep like reasons apart.
    reasons = [
        _("not {what}: {why}", what=_("with another test") if pairing.startswith("`") else pairing, why=why)
        for pairing, why in map(parts_of, finding.obstacles)
    ]
    everything = _("all that was to be raced was raced")
    return dict.fromkeys(reasons) or [finding.reason if finding.verdict == "not tried" else everything]


def _suppressed(finding: Finding, suppressions: Mapping[str, str]) -> Finding:
    """Return the finding with the reason for which it is accepted, if it is confirmed."""
    site = finding.candidate.write.site
    places = [finding.candidate.id, *([site.path, f"{site.path} {site.function}"] if site else [])]
    reasons = (suppressions[place] for place in places if place in suppressions)
    return replace(finding, suppressed=next(reasons, "") if finding.verdict == _CONFIRMED else "")


def read_suppressions(root: Path, baseline: Path | None = None) -> dict[str, str]:
    """Return why races are accepted, by ``[[tool.lockstep.races]]`` in the project's pyproject.toml, or a ``baseline``.

    Keys are the path of the file that writes, that with the function after a space, or a candidate's id, as of all that
    an earlier report has confirmed. Raises `FinderError` without site or reason, and if ``baseline`` is no report in
    JSON; ``OSError`` without it.
    """
    path = root / "pyproject.toml"
    settings = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    entries = settings.get("tool", {}).get("lockstep", {}).get("races", [])
    if not isinstance(entries, list):
        raise FinderError("races of tool.lockstep in pyproject.toml must be tables [[tool.lockstep.races]]")
    for entry in entries:
        texts = entry.values() if isinstance(entry, dict) and set(entry) == {"site", "reason"} else [None]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise FinderError(
                f"an entry of tool.lockstep.races in pyproject.toml must have site and reason, not {entry!r}"
            )
    earlier = _confirmed_in(baseline) if baseline is not None else {}
    return {**earlier, **{entry["site"]: entry["reason"] for entry in entries}}


def _confirmed_in(baseline: Path) -> dict[str, str]:
    try:
        candidates = json.loads(baseline.read_text("utf-8"))["candidates"]
        names = [candidate["id"] for candidate in candidates if candidate["verdict"] == "confirmed"]
    except (ValueError, KeyError, TypeError) as error:
        raise FinderError(f"{baseline} is no report in JSON, as a report named .json is") from error
    return dict.fromkeys(names, f"in the baseline {baseline.name}")
