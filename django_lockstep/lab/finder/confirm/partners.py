"""Requests of different tests that are raced with each other: one writes what the other one reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from django_lockstep.lab.finder.confirm.forks import Fork, RequestActor
from django_lockstep.lab.finder.confirm.pairings import Pairing, put_back, with_partner
from django_lockstep.lab.finder.confirm.points import Point
from django_lockstep.lab.finder.confirm.transplants import Captured
from django_lockstep.lab.finder.derive.candidates import Candidate, Witness

__all__ = ["Partners", "partner_tests"]

_Role = tuple[Candidate, str, str]
"""A candidate that a request is of, the name of its unit there, and that of the other unit."""


def partner_tests(candidate: Candidate) -> list[str]:
    """Return a test of the candidate's partner that does not show the candidate itself, if there is one."""
    own = {witness.test for witness in candidate.witnesses}
    others = [witness.test for witness in candidate.partner_witnesses if witness.test not in own]
    return others[:1] if candidate.unit_kind == candidate.partner_kind == "request" else []


class Partners:
    """Keeps a request of each unit that may be raced with those of other tests; whichever comes second is raced."""

    def __init__(self) -> None:
        self._captured: dict[str, Captured] = {}

    def pairings(
        self, test: str, point: Point, shown: Iterable[tuple[Candidate, Witness]]
    ) -> Iterator[tuple[Pairing, AbstractContextManager[Fork], list[Candidate]]]:
        """Yield the request with those that other tests have sent, for the candidates that are of both."""
        by_names: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
        for candidate, name, other in _roles(point, shown):
            by_names[name, other].append(candidate)
        for (name, other), candidates in by_names.items():
            partner = self._captured.get(other)
            # One of this test is paired as an earlier one, without being moved.
            if partner is not None and partner.test != test and isinstance(point.actor, RequestActor):
                pairing = Pairing(
                    kind="request",
                    unit=name,
                    partner=other,
                    partner_test=partner.test,
                    partner_number=partner.number,
                )
                yield pairing, with_partner(partner, point.actor), candidates

    def capture(self, test: str, point: Point, shown: Iterable[tuple[Candidate, Witness]]) -> None:
        """Keep the request if another test may need it. Raises what keeps it from being sent once more."""
        for candidate, name, _ in _roles(point, shown):
            # One of each unit: to capture it, the databases are copied and the request is tried.
            needed = name not in self._captured and bool(partner_tests(candidate))
            if needed and isinstance(point.actor, RequestActor):
                with put_back():
                    captured = Captured.of(point.actor, test=test, number=point.number)
                if captured.trial.is_accepted:
                    self._captured[name] = captured


def _roles(point: Point, shown: Iterable[tuple[Candidate, Witness]]) -> Iterator[_Role]:
    for candidate, place in shown:
        if candidate.unit_kind == candidate.partner_kind == point.kind == "request" and place.number == point.number:
            if place in candidate.witnesses:
                yield candidate, candidate.unit, candidate.partner
            elif place in candidate.partner_witnesses:
                yield candidate, candidate.partner, candidate.unit
