"""Candidates for races: writes that may go wrong when they are done at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from django_lockstep.lab.finder.record.recording import RecordedStatement

_WITH_PARTNER = frozenset({"whole-row-write", "deleted-row-write"})
"""Kinds that no unit shows beside itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A unit in a test that did it; see `Unit` on its number."""

    test: str
    number: int
    path: str = ""
    """A digest of the statements that it sent, and of what the test had done before."""
    later: frozenset[str] = frozenset()
    """Digests of what the test did afterwards with which it may be raced."""

    def shows_no_more_than(self, witness: Witness) -> bool:
        """Whether a try of it would show nothing new after a try of the other one."""
        return self.path == witness.path and self.later <= witness.later


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """Another unit that changes what a candidate reads."""

    unit: str
    kind: str
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A write of one unit that may race with the same write, or with another one, done at the same time."""

    id: str
    """Of kind, table, write site and unit: the same in every run, also after lines above the site were edited."""
    kind: str
    """One of those of which `REMEDIES` says what fits."""
    table: str
    columns: tuple[str, ...] = ()
    """Those that are written, where only some are."""
    unit: str
    """The name of the unit that writes; each unit that reaches the write has a candidate of its own."""
    unit_kind: str
    read: RecordedStatement
    write: RecordedStatement
    witnesses: tuple[Witness, ...]
    """Units of that name that did it, the shortest first."""
    partners: tuple[Partner, ...] = ()
    """Other units that change what this one reads, those that can be raced with it first."""
    rank: int
    """The lower, the worse the consequence; those of a write that another unit has reached come behind all first ones.
    """
    sentence: str

    @property
    def names(self) -> frozenset[str]:
        """The names of its unit and of its partners."""
        return frozenset({self.unit, *(partner.unit for partner in self.partners)})

    @property
    def places(self) -> tuple[Witness, ...]:
        """The witnesses of its unit, then those of its partners."""
        return self.witnesses + sum((partner.witnesses for partner in self.partners), ())

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that show it."""
        return tuple(dict.fromkeys(place.test for place in self.places))

    def may_race(self, name: str, partner: str) -> bool:
        """Whether units of these names may show it."""
        pairs = [{self.unit, peer.unit} for peer in self.partners]
        return self.kind not in _WITH_PARTNER or {name, partner} in pairs
