"""What transactions come to, as far as runs have shown, and between whose there may be conflicts."""

import itertools

import pytest

from django_lockstep.lab.explorer.conflict_graph import ConflictGraph, Transactions
from django_lockstep.lab.explorer.footprints import EVERYTHING, Access, End, Footprint, FootprintKey, dependent
from django_lockstep.lab.explorer.reach import Reach

A, B, C, D = range(4)
NONE: frozenset[FootprintKey] = frozenset()


def rows(*keys: int | None, table: str = "seat") -> frozenset[FootprintKey]:
    return frozenset((table, key) for key in keys)


def reach_of(*originals: int) -> Reach:
    reach = Reach()
    reach.originals = originals
    return reach


# What runs have shown


def test_what_one_actor_has_come_to_another_one_with_its_function_may_come_to() -> None:
    reach = reach_of(0, 1, 0)
    reach.note_seen(2, rows(7))

    assert [reach.seen_by(actor) for actor in range(3)] == [rows(7), NONE, rows(7)]


def test_of_many_rows_the_whole_table_counts_so_that_no_more_are_learned() -> None:
    reach = reach_of(0)
    for key in range(20):
        reach.note_written(0, rows(key))

    assert reach.written_by(0) == rows(None, *range(9))


def test_of_one_that_may_do_anything_no_more_is_learned() -> None:
    reach = reach_of(0)
    reach.note_unknown(0)
    reach.note_seen(0, rows(1))
    reach.note_written(0, rows(1))

    assert reach.seen_by(0) == reach.written_by(0) == {EVERYTHING}


def test_one_whose_snapshot_matters_for_all_rows_is_linked_by_those_that_it_comes_to() -> None:
    reach = reach_of(0, 1, 2)
    reach.note_seen(0, {EVERYTHING})
    reach.note_seen(0, rows(1))
    reach.note_written(1, rows(1))
    reach.note_written(2, rows(2))

    assert reach.graph.place(0, NONE, NONE, end=None).linked == {A, B}


def test_facts_are_taken_over_as_they_are_in_any_order() -> None:
    first = reach_of(0, 1)
    for key in range(20):
        first.note_seen(1, rows(key))
    first.note_written(0, rows(3))
    for facts in (sorted(first.facts, key=str), sorted(first.facts, key=str, reverse=True)):
        second = reach_of(0, 1)
        for fact in facts:
            second.learn(fact)

        assert second.facts == first.facts
        assert len(second) == len(first.facts)

    first.forget()
    assert (first.facts, len(first)) == (NONE, 0)


# Who may have a conflict with whom


def graph(*seen_and_written: tuple[frozenset[FootprintKey], frozenset[FootprintKey]]) -> ConflictGraph:
    return ConflictGraph([Transactions(*each) for each in seen_and_written])


def ring() -> ConflictGraph:
    return graph(*((rows(key, (key + 1) % 4), rows(key, (key + 1) % 4)) for key in range(4)))


RING = ring()
"""Each of four actors moves something from its row to the next one's."""
STAR = graph((rows(1, 2, 3), rows(1, 2, 3)), *((rows(key), rows(key)) for key in (1, 2, 3)))
"""A changes a row of each of the others."""


def step(
    graph: ConflictGraph,
    actor: int,
    *keys: int,
    end: End | None = None,
    dangerous: bool = False,
) -> Footprint:
    """Return a step that reads and writes the rows, of which the one counts for the conflicts of others alone."""
    place = graph.place(actor, rows(*keys), rows(*keys), end=end)
    access = Access(read=NONE, written=NONE, held=NONE, watched=NONE, committed=NONE, place=place, dangerous=dangerous)
    return Footprint(accesses=frozenset({access}))


def test_those_are_linked_of_which_one_reads_what_the_other_one_writes() -> None:
    readers = graph((rows(1), NONE), (rows(1), rows(2)), (rows(2), NONE), (NONE, rows(2)))

    assert [readers.place(actor, NONE, NONE, end=None).linked for actor in range(4)] == [{A}, {B, C}, {B, C, D}, {C, D}]


def test_one_that_may_write_anything_is_linked_to_all() -> None:
    found = graph((rows(1), NONE), (NONE, frozenset({EVERYTHING})), (rows(2), NONE))

    assert [found.place(actor, NONE, NONE, end=None).linked for actor in range(3)] == [{A, B}, {A, B, C}, {B, C}]


@pytest.mark.parametrize(
    ("one", "other", "matters"),
    [
        # Of steps that read or write each adds conflicts with those who may write or read the same rows.
        (step(RING, A, 0, dangerous=True), step(RING, C, 2), False),
        (step(RING, A, 1, dangerous=True), step(RING, C, 2), False),
        (step(RING, A, 1, dangerous=True), step(RING, B, 2), True),
        (step(RING, A, 0, dangerous=True), step(RING, B, 1), True),
        (step(RING, A, 0, dangerous=True), step(RING, B, 2), False),
        (step(RING, A, 1), step(RING, B, 1), False),  # none is dangerous
        # B's step may doom A, for which D would be refused; that takes a third one which has committed.
        (step(STAR, B, 1), step(STAR, D, 3, dangerous=True), True),
        (step(STAR, B, 1, dangerous=True), step(STAR, D, 3, end=End.UNDONE), True),
        (step(RING, A, 1, dangerous=True), step(RING, C, 2, end=End.UNDONE), False),
        # One that undoes its transaction takes its conflicts away.
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, B, 1), True),
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, B, 2), False),
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, B, 2, dangerous=True), True),
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, C, 2, dangerous=True), False),
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, B, end=End.UNDONE, dangerous=True), True),
        (step(RING, A, end=End.UNDONE, dangerous=True), step(RING, C, end=End.UNDONE, dangerous=True), False),
        # A COMMIT may doom one between it and the other.
        (step(RING, A, end=End.WRITTEN, dangerous=True), step(RING, C, 2), True),
        (step(RING, A, end=End.WRITTEN, dangerous=True), step(RING, C, end=End.WRITTEN), True),
        (step(RING, A, end=End.WRITTEN, dangerous=True), step(RING, C, end=End.UNDONE), True),
        # Where it may not it matters to those who have a conflict with it.
        (step(RING, A, end=End.WRITTEN), step(RING, B, 2, dangerous=True), True),
        (step(RING, A, end=End.WRITTEN), step(RING, C, 2, dangerous=True), False),
        (step(RING, A, end=End.WRITTEN), step(RING, C, end=End.UNDONE, dangerous=True), False),
        # From its COMMIT on the server knows that one has only read.
        (step(RING, A, end=End.READ), step(RING, C, 2, dangerous=True), True),
    ],
)
def test_steps_decide_together_who_is_refused(one: Footprint, other: Footprint, matters: bool) -> None:
    assert dependent(one, other) is dependent(other, one) is matters


@pytest.mark.parametrize("chosen", [RING, STAR])
def test_it_is_symmetric(chosen: ConflictGraph) -> None:
    steps = [
        step(chosen, actor, *keys, end=end, dangerous=dangerous)
        for actor, keys, end, dangerous in itertools.product((A, B, C), ((), (1,)), (None, *End), (False, True))
    ]

    for one, other in itertools.combinations(steps, 2):
        assert dependent(one, other) is dependent(other, one), (one, other)


def test_where_the_place_is_not_known_it_matters_to_all() -> None:
    unknown = Footprint(
        accesses=frozenset({Access(read=NONE, written=NONE, held=NONE, watched=NONE, committed=NONE, dangerous=True)})
    )

    assert dependent(unknown, step(RING, C, 2))


def test_places_are_equal_in_every_run() -> None:
    first, second = (ring() for _ in range(2))

    assert first.place(A, rows(0), NONE, end=None) == second.place(A, rows(0), NONE, end=None)
    assert first.place(A, rows(0), NONE, end=None) != second.place(A, rows(1), NONE, end=None)
