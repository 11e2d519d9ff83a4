"""Ends as rows: what differs, in which columns, and how that is told."""

from collections.abc import Iterable, Sequence
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_lockstep.lab.explorer.tables.canonical import canonical_text
from django_lockstep.lab.explorer.tables.final_state import (
    FinalState,
    describe_difference,
    describe_state,
    differing_columns,
    without_columns,
)

ADA = {"name": "Ada", "price": 1, "token": "x"}
BOB = {"name": "Bob", "price": 2, "token": "y"}


def test_columns_that_hold_other_values_are_found_whatever_the_order_of_rows() -> None:
    again: FinalState = {"seat": [{**BOB, "token": "a"}, {**ADA, "token": "b"}]}

    assert differing_columns({"seat": [ADA, BOB]}, again) == {"seat.token"}
    assert without_columns(again, ["seat.token"]) == without_columns({"seat": [ADA, BOB]}, ["*.token"])


def test_removed_rows_have_the_columns_of_their_table() -> None:
    assert without_columns({"seat, removed": [ADA]}, ["seat.price", "seat.token"]) == {
        "seat, removed": [{"name": "Ada"}]
    }


@pytest.mark.parametrize(
    ("state", "expected", "words"),
    [
        ("110", "120", ["110 instead of 120"]),
        ("110", "110", []),
        ({"seat": [ADA]}, {"seat": [{**ADA, "price": 3}]}, ["seat: price 1 instead of 3"]),
        (
            {"seat": [ADA, BOB]},
            {"seat": [ADA, {**BOB, "price": None}]},
            ["seat: price 2 instead of NULL in the row with name=Bob, token=y"],
        ),
        ({"seat": [ADA, BOB]}, {"seat": [ADA]}, ["seat: one row more, name=Bob, price=2, token=y"]),
        ({"seat": [ADA]}, {"seat": [ADA, BOB]}, ["seat: one row less, name=Bob, price=2, token=y"]),
        ({}, {"seat": [ADA]}, ["seat: one row less, name=Ada, price=1, token=x"]),
        # The only new row of one end, and one of two of the other: there is another difference, where it is missing.
        (
            {"seat": [{"show": "A#1"}, ADA]},
            {"seat": [{"show": "#1"}]},
            ["seat: one row more, name=Ada, price=1, token=x"],
        ),
        (
            {"seat": [{"show": "A#1", "price": 1}]},
            {"seat": [{"show": "#1", "price": 2}]},
            ["seat: price 1 instead of 2"],
        ),
        ({"seat": [{"show": "A#1"}]}, {"seat": [{"show": "B#1"}]}, ["seat: show A#1 instead of B#1"]),
        ({"seat": [{"show": "A#1"}]}, {"seat": [{"show": "#2"}]}, ["seat: show A#1 instead of #2"]),
        (
            {},
            {"t": [dict.fromkeys("abcdefghijk", 1)]},
            ["t: one row less, a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, ..."],
        ),
        (  # a change that is lost
            {},
            {"t": [{**dict.fromkeys("abcdefgh", 1), "i": ""}], "t, removed": [dict.fromkeys("abcdefghi", 1)]},
            [
                "t: one row less, i='', a=1, b=1, c=1, d=1, e=1, f=1, g=1, ...",
                "t, removed: one row less, a=1, b=1, c=1, d=1, e=1, f=1, g=1, h=1, ...",
            ],
        ),
    ],
)
def test_a_difference_names_the_columns(state: FinalState, expected: FinalState, words: list[str]) -> None:
    assert describe_difference(state, expected) == words


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("120.00", "120.00"),
        ({}, "no table is changed"),
        ({"seat": [ADA]}, "seat: name=Ada, price=1, token=x"),
        ({"seat": [{"n": n} for n in range(8)]}, "seat: n=0 | n=1 | n=2 | n=3 | n=4 | n=5 | and 2 more rows"),
    ],
)
def test_a_state_in_a_line(state: FinalState, words: str) -> None:
    assert describe_state(state) == words


KEYS = range(700_001, 700_007)
EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9)


def graph(edges: Iterable[tuple[int, int]], keys: Sequence[int]) -> list[tuple[str, ...]]:
    rows = [("row ", str(key), "") for key in keys]
    return [*rows, *(("edge ", str(keys[start]), " ", str(keys[end]), "") for start, end in edges)]


# A loop beside a ring, and two rings: all keys are mentioned alike, but not all can be exchanged.
@example([(0, 0), (1, 2), (2, 1)], None, [700_002, 700_001, *KEYS[2:]])
@example([(0, 1), (1, 0), (2, 3), (3, 4), (4, 2)], None, [*KEYS[::-1]])
@given(EDGES, st.none() | EDGES, st.permutations(KEYS))
def test_ends_are_the_same_if_keys_can_be_exchanged(
    edges: list[tuple[int, int]], others: list[tuple[int, int]] | None, keys: list[int]
) -> None:
    second = others or [edges[0][::-1], *edges[1:]]

    same = canonical_text(graph(edges, KEYS), {}) == canonical_text(graph(second, keys), {})
    assert same is any(sorted((p[a], p[b]) for a, b in second) == sorted(edges) for p in permutations(range(6)))
