"""The report as data: each candidate with what became of it, and the confirmed ones by cause, the worst first."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_lockstep.lab.finder.confirm.remedies import REMEDIES
from django_lockstep.lab.finder.consequences import consequence_sentence
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import LOWER_LIMIT, VERDICTS, Finding, Findings
from django_lockstep.lab.wording import counted, listed

__all__ = [
    "MOST_UNITS",
    "NOTHING_TRIED",
    "NOT_DECIDED",
    "STATUSES",
    "Entry",
    "Race",
    "Report",
    "Suppression",
    "entries_of",
    "read_suppressions",
    "report_on",
]

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
class Entry:
    """One candidate."""

    candidate: Candidate
    finding: Finding
    suppressed: str = ""
    """Why it is accepted, if it is confirmed."""

    @property
    def status(self) -> str:
        """The verdict, or that it is suppressed: one of `STATUSES`."""
        return "suppressed" if self.suppressed else self.finding.verdict

    @property
    def fault(self) -> str:
        """The line by which it goes wrong, or the one that writes, such as ``shop/views.py:49``; or its id."""
        return self.finding.fault or str(self.candidate.write.site or self.candidate.id)

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it."""
        return tuple(dict.fromkeys(place.test for place in self.candidate.places))

    @property
    def remedies(self) -> tuple[str, ...]:
        """What fits its kind, the first choice first."""
        return REMEDIES[self.candidate.kind]

    @property
    def difference(self) -> str:
        """What differs from every serial end."""
        return "; ".join(self.finding.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What has one cause: confirmed candidates that go wrong by one line, or in one schedule."""

    title: str
    """The worst consequence, in a sentence."""
    entries: tuple[Entry, ...]
    """The worst first."""

    @property
    def worst(self) -> Entry:
        """The candidate whose schedule is shown."""
        return self.entries[0]

    @property
    def units(self) -> tuple[str, ...]:
        """The names of the requests and functions that reach it."""
        return tuple(dict.fromkeys(entry.candidate.unit for entry in self.entries))

    @property
    def reached_by(self) -> str:
        """The first of them, and how many more there are."""
        return listed(self.units, most=MOST_UNITS)

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it."""
        return tuple(dict.fromkeys(test for entry in self.entries for test in entry.tests))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is known about a recording."""

    root: Path
    """The project's folder."""
    summary: str
    """How many candidates there are, from how much."""
    notes: tuple[str, ...]
    """What could not be recorded."""
    tried: bool
    """Whether something was tried; otherwise the candidates are only listed."""
    entries: tuple[Entry, ...]
    is_empty: bool = False
    """Whether nothing was recorded."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Labels of models, by table."""

    def counts(self) -> dict[str, int]:
        """Return how many have each status; suppressed and undecided ones only if there are some."""
        counts = {status: sum(entry.status == status for entry in self.entries) for status in STATUSES}
        return {status: count for status, count in counts.items() if count or status not in _IF_SOME}

    def races(self) -> tuple[Race, ...]:
        """Return the confirmed candidates by cause, the worst first, those that are accepted last."""
        groups: dict[int, list[Entry]] = {}
        numbers: dict[object, int] = {}
        for entry in (entry for entry in self.entries if entry.finding.verdict == _CONFIRMED):
            finding = entry.finding
            keys = (
                (entry.fault, entry.suppressed),
                (finding.test, finding.schedule, finding.differences, entry.suppressed),
            )
            number = next((numbers[key] for key in keys if key in numbers), len(groups))
            numbers |= dict.fromkeys(keys, number)
            groups.setdefault(number, []).append(entry)
        races = []
        for worst, *others in groups.values():
            # Beyond a limit, equal rows are not what is wrong.
            kind = "" if worst.finding.against == LOWER_LIMIT else worst.candidate.kind
            title = consequence_sentence(worst.finding.differences, kind=kind, models=self.models)
            races.append(Race(title=title, entries=(worst, *others)))
        return tuple(races)

    def rest(self) -> dict[str, dict[str, list[Entry]]]:
        """Return the other candidates by verdict, and by what could be tried yet, or why there is nothing to find.

        First what a larger budget or another test may change; a candidate that several things kept from being raced
        stands under each of them.
        """
        rest: dict[str, dict[str, list[Entry]]] = {}
        for verdict in ("not tried", "not decided", "not confirmed"):
            reasons: dict[str, list[Entry]] = {}
            for entry in (entry for entry in self.entries if entry.finding.verdict == verdict):
                for reason in _reasons(entry):
                    reasons.setdefault(reason, []).append(entry)
            if reasons:
                rest[verdict] = dict(sorted(reasons.items(), key=lambda pair: -len(pair[1])))
        return rest

    @property
    def is_untried(self) -> bool:
        """Whether nothing was recorded, or a search has tried none of the candidates."""
        verdicts = {entry.finding.verdict for entry in self.entries}
        return self.is_empty or (self.tried and verdicts == {"not tried"})

    @property
    def obstacle(self) -> str:
        """What was not looked at, in a line; empty if a further search of these candidates finds no more."""
        if self.is_empty:
            return " ".join(["NOTHING WAS LOOKED AT: nothing that a test writes was recorded.", *self.notes])
        candidates = counted(len(self.entries), "candidate")
        if self.is_untried:
            ((reason, _),) = Counter(entry.finding.reason for entry in self.entries).most_common(1)
            return f"NOTHING WAS LOOKED AT: none of {candidates} was tried: {reason}"
        left = sum(entry.finding.is_left for entry in self.entries)
        return f"NOT ALL WAS LOOKED AT: {left} of {candidates} left for a longer search" if left else ""

    @property
    def exit_status(self) -> int:
        """1 if a race is confirmed that the project does not accept, `NOTHING_TRIED`, `NOT_DECIDED`, or 0."""
        if any(entry.status == "confirmed" for entry in self.entries):
            return 1
        if self.is_untried:
            return NOTHING_TRIED
        return NOT_DECIDED if self.obstacle else 0


def _reasons(entry: Entry) -> Iterable[str]:
    finding = entry.finding
    if finding.verdict == "not decided":
        return ["more is left to try, with a larger budget"]
    # The names of both requests, which a pairing with another test begins with, would keep like reasons apart.
    pairs = (obstacle.partition(": ") for obstacle in finding.obstacles)
    reasons = [f"not {'with another test' if pair.startswith('`') else pair}: {reason}" for pair, _, reason in pairs]
    return dict.fromkeys(reasons) or [
        finding.reason if finding.verdict == "not tried" else "all that was to be raced was raced"
    ]


def report_on(findings: Findings, suppressed: Sequence[Suppression], *, root: Path, tried: bool = True) -> Report:
    """Return the report on all candidates; without ``tried``, as if none of them had been tried."""
    pairs = findings.pairs() if tried else []
    decided = {candidate.id for candidate, _ in pairs}
    rest = [
        (candidate, Finding(candidate=name, verdict="not tried", reason="nothing was tried yet"))
        for name, candidate in findings.candidates.items()
        if name not in decided
    ]
    return Report(
        root=root,
        summary=findings.summary,
        notes=findings.notes,
        tried=bool(pairs),
        entries=entries_of([*pairs, *rest], suppressed),
        is_empty=findings.is_empty,
        models=findings.models,
    )


def entries_of(pairs: Iterable[tuple[Candidate, Finding]], suppressed: Sequence[Suppression]) -> tuple[Entry, ...]:
    """Return what reports say about these candidates, in this order, those that are accepted after the confirmed."""
    entries = []
    for candidate, finding in pairs:
        covering = (suppression for suppression in suppressed if suppression.covers(candidate))
        reasons = (suppression.reason for suppression in covering if finding.verdict == "confirmed")
        entries.append(Entry(candidate=candidate, finding=finding, suppressed=next(reasons, "")))
    return tuple(sorted(entries, key=lambda entry: STATUSES.index(entry.status)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """A write site whose races are accepted: of ``[[tool.lockstep.races]]`` in the project's pyproject.toml."""

    site: str
    """The path of the file that writes, with the function after a space; or a candidate's id."""
    reason: str

    def covers(self, candidate: Candidate) -> bool:
        """Whether the candidate writes there."""
        site = candidate.write.site
        places = {candidate.id} | ({site.path, f"{site.path} {site.function}"} if site else set())
        return self.site in places


def read_suppressions(root: Path, baseline: Path | None = None) -> list[Suppression]:
    """Return the suppressions of the project in this folder, and the races that an earlier report has confirmed.

    Raises `FinderError` without site or reason, and if ``baseline`` is no report in JSON; ``OSError`` without it.
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
    earlier = _confirmed_in(baseline) if baseline is not None else []
    return [*(Suppression(**entry) for entry in entries), *earlier]


def _confirmed_in(baseline: Path) -> list[Suppression]:
    try:
        candidates = json.loads(baseline.read_text("utf-8"))["candidates"]
        names = [candidate["id"] for candidate in candidates if candidate["verdict"] == "confirmed"]
    except (ValueError, KeyError, TypeError) as error:
        raise FinderError(f"{baseline} is no report in JSON, as a report named .json is") from error
    return [Suppression(site=name, reason=f"in the baseline {baseline.name}") for name in names]
