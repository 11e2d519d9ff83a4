"""Derives the candidates from a recording: grouped by kind, table, write and unit, the worst first. No database."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from django_lockstep.lab.finder.derive.candidates import Candidate, Partner, Witness
from django_lockstep.lab.finder.derive.history import History, Hit, UnitStep
from django_lockstep.lab.finder.derive.pair_races import lock_orders, write_skews
from django_lockstep.lab.finder.derive.row_races import insert_races, row_races, whole_row_races
from django_lockstep.lab.finder.record.recording import PASSED_ROW, Recording, Table, Unit
from django_lockstep.lab.wording import gettext, listed, ngettext

_MOST_WITNESSES = 5
_MOST_ALIKE = 20
"""Units with the same statements that are looked at for witnesses."""
_MOST_PARTNERS = 3
_FURTHER = 100
"""What is added to the rank for each unit that has come to the same write before; more than all ranks."""
_Place = tuple[str, str, int]
"""Path, function and line of a write, or its SQL where it has no site."""
_Key = tuple[str, str, _Place, str]
"""Kind, table, write and unit."""
_Writers = Mapping[tuple[str, str, str], list[Unit]]
"""The units that write, by verb, table and column; of an INSERT or DELETE without columns."""


def find_candidates(recording: Recording) -> list[Candidate]:
    """Return the candidates, those with the worst consequences first, and of these the shortest units."""
    histories = [History(unit, recording.tables) for unit in recording.writers]
    writers, trails = _writers(histories), _Trails(recording.units)
    groups: dict[_Key, list[Hit]] = defaultdict(list)
    alone = ((row_races(it), insert_races(it)) for it in histories)
    together = whole_row_races(histories), write_skews(histories), lock_orders(histories)
    for hit in chain.from_iterable(chain(*alone, together)):
        groups[hit.kind, hit.table, _place(hit.write), hit.unit.name].append(hit)
    # By line, so that the same write has the same number in its function, and thereby the same id, in every run.
    numbers, counts = dict[tuple[Any, ...], int](), Counter[tuple[str, ...]]()
    for write in sorted({key[:3] for key in groups}):
        kind, table, (path, function, _) = write
        numbers[write] = counts[kind, table, path, function]
        counts[kind, table, path, function] += 1
    return _by_turns(
        _candidate(key, hits, nth=numbers[key[:3]], tables=recording.tables, writers=writers, trails=trails)
        for key, hits in groups.items()
    )


def _by_turns(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Rank one unit of each write before the further ones, which often show the same: dozens may pass a middleware."""
    turns = Counter[tuple[Any, ...]]()
    ranked = []
    # Requests first, for they are what users send, before calls that only tests may make.
    for candidate in sorted(candidates, key=lambda it: (it.rank, it.unit_kind == "call", it.table, it.unit, it.id)):
        write = candidate.kind, candidate.table, candidate.write.site or candidate.write.sql
        ranked.append(replace(candidate, rank=candidate.rank + _FURTHER * turns[write]))
        turns[write] += 1
    return sorted(ranked, key=lambda candidate: candidate.rank)


def _place(write: UnitStep) -> _Place:
    site = write.statement.site
    return (site.path, site.function, site.line) if site else ("", write.statement.sql, 0)


class _Trails:
    """What each test did, unit by unit."""

    def __init__(self, units: Iterable[Unit]) -> None:
        trails: dict[str, list[tuple[Unit, str]]] = defaultdict(list)
        self._places: dict[int, tuple[list[tuple[Unit, str]], int]] = {}
        """The trail and the place in it of each unit, by identity: to compare units takes longer."""
        for unit in units:
            trail = trails[unit.test]
            self._places[id(unit)] = trail, len(trail)
            trail.append((unit, unit.digest))

    def some_of_each(self, units: Iterable[Unit]) -> list[Unit]:
        """Return a few units of each digest: in a large suite hundreds of tests have the same request sent."""
        digests = defaultdict[str, dict[int, Unit]](dict)
        for unit in units:
            trail, place = self._places[id(unit)]
            same = digests[trail[place][1]]
            if len(same) < _MOST_ALIKE:
                same[id(unit)] = unit
        return [unit for same in digests.values() for unit in same.values()]

    def witness(self, unit: Unit, names: Collection[str]) -> Witness:
        """Return the unit as a witness of a candidate that races with units of these names."""
        trail, place = self._places[id(unit)]
        # A unit that only reads, such as a refused request, is raced if units of its name write elsewhere.
        before = {
            (peer.name, "" if peer.name not in names else digest)
            for peer, digest in trail[:place]
            if peer.statements or peer.name in names
        }
        path = hashlib.blake2b(repr((trail[place][1], sorted(before))).encode(), digest_size=8).hexdigest()
        later = frozenset(f"{peer.name} {digest}" for peer, digest in trail[place + 1 :] if peer.name in names)
        return Witness(test=unit.test, number=unit.number, path=path, later=later)


def _candidate(
    key: _Key,
    hits: list[Hit],
    *,
    nth: int,
    tables: Mapping[str, Table],
    writers: _Writers,
    trails: _Trails,
) -> Candidate:
    kind, table, _, unit = key
    # The worst consequence; the shortest, for it is the quickest to confirm.
    first = min(hits, key=lambda hit: (hit.rank, len(hit.unit.statements), hit.unit.test, hit.unit.number))
    same = [hit for hit in hits if hit.rank == first.rank]
    columns = tuple(sorted(frozenset().union(*(hit.columns for hit in same))))
    partners = _partners(first, same, columns, writers)
    names = {unit, *partners}
    write = first.write.statement
    # Without the line, which moves when something above it is edited.
    place = f"{write.site.path} {write.site.function}" if write.site else write.sql
    return Candidate(
        id=hashlib.blake2b(f"{kind} {table} {nth} {place} {unit}".encode(), digest_size=6).hexdigest(),
        kind=kind,
        table=table,
        columns=columns,
        unit=unit,
        unit_kind=first.unit.kind,
        read=first.read.statement,
        write=write,
        witnesses=_witnesses((hit.unit for hit in same), trails, names),
        partners=tuple(
            Partner(unit=name, kind=units[0].kind, witnesses=_witnesses(units, trails, names))
            for name, units in partners.items()
        ),
        rank=first.rank,
        sentence=_sentence(first, columns, tables, next(iter(partners), gettext("another unit"))),
    )


def _witnesses(units: Iterable[Unit], trails: _Trails, names: Collection[str]) -> tuple[Witness, ...]:
    pairs = {trails.witness(unit, names): len(unit.statements) for unit in trails.some_of_each(units)}
    shortest = sorted(pairs, key=lambda witness: (pairs[witness], -len(witness.later), witness.test, witness.number))
    # First those that show something new; the others are for tests that fail.
    first: list[Witness] = []
    for witness in shortest:
        if not any(map(witness.shows_no_more_than, first)):
            first.append(witness)
    return tuple(dict.fromkeys([*first, *shortest]))[:_MOST_WITNESSES]


def _writers(histories: Sequence[History]) -> _Writers:
    writers: dict[tuple[str, str, str], list[Unit]] = defaultdict(list)
    for history in histories:
        for write in history.writes("UPDATE", "INSERT", "DELETE"):
            columns = write.template.assignments if write.template.verb == "UPDATE" else [""]
            for column in columns:
                writers[write.template.verb, write.template.table, column].append(history.unit)
    return writers


_COUNTERPARTS = {"INSERT": ("INSERT", "DELETE"), "DELETE": ("INSERT", "DELETE")}
"""By the verb of a write, what changes the rows that were read before it; a deletion last, for most writes then find
none."""


def _partners(hit: Hit, hits: list[Hit], columns: Sequence[str], writers: _Writers) -> dict[str, list[Unit]]:
    """Return units that change what this one reads, by name; of its own name only where there are no others."""
    # Hits of one unit share theirs.
    groups = [[unit for units in {id(same.partners): same.partners for same in hits}.values() for unit in units]]
    if not groups[0]:
        verbs = _COUNTERPARTS.get(hit.write.template.verb, ("UPDATE", "DELETE"))
        columns_of = {verb: columns if verb == "UPDATE" else [""] for verb in verbs}
        groups = [
            [unit for name in names for unit in writers.get((verb, hit.table, name), ())]
            for verb, names in columns_of.items()
        ]
    partners: dict[str, list[Unit]] = {}
    for units in groups:
        by_name = defaultdict[str, list[Unit]](list)
        for unit in {id(unit): unit for unit in units}.values():
            by_name[unit.name].append(unit)
        for name in sorted(by_name, key=lambda name: (min(len(unit.statements) for unit in by_name[name]), name)):
            partners.setdefault(name, []).extend(by_name[name])
    own = partners.pop(hit.unit.name, [])
    # Those of its kind first: others cannot be raced with it.
    chosen = sorted(partners, key=lambda name: partners[name][0].kind != hit.unit.kind)[:_MOST_PARTNERS]
    if not chosen and hit.partners:
        return {hit.unit.name: own}
    return {name: partners[name] for name in chosen}


def _sentence(hit: Hit, columns: Sequence[str], tables: Mapping[str, Table], partner: str) -> str:
    table = tables.get(hit.table)
    owner = (table.model if table else "") or hit.table
    name = listed(f"{owner}.{column}" for column in columns) if columns and hit.kind != "write-skew" else owner
    subject = ngettext("{name} is", "{name} are", max(1, len(columns)), name=name)
    read, write = _at(hit.read), _at(hit.write)
    return gettext(hit.sentence, name=name, subject=subject, read=read, write=write, partner=partner)


def _at(step: UnitStep) -> str:
    site = step.statement.site
    if site and step.statement.sql == PASSED_ROW:
        return gettext(" by the caller of {function}()", function=site.function)
    return gettext(" at {place}", place=str(site)) if site else ""
