"""The text of test files that reproduce races."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from django_lockstep.lab.finder.confirm.witnesses import TestPlace, write_test_file
from tests.django_lockstep.lab.finder.test_findings import confirmed

PLACE = TestPlace("shop.tests.test_seats", "test_booking")


def lines(place: TestPlace = PLACE, name: str = "seats/<int:pk>/book", **fields: Any) -> list[str]:
    return write_test_file(confirmed(name, **fields), {"": place}).splitlines()


def last(place: TestPlace = PLACE, **fields: Any) -> str:
    return lines(place, **fields)[-1].partition("raced")[2]


def test_the_whole_file() -> None:
    text = "\n".join(lines(number=2))

    assert text == (
        '"""read-modify-write in POST seats/<int:pk>/book/: fails as long as the race is there."""\n\n'
        "from django_lockstep.lab.finder.confirm.witnesses import raced\n"
        "from shop.tests import test_seats\n\n"
        "test_post_seats_int_pk_book_does_not_race = raced(test_seats.test_booking, number=2)"
    )


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ""),
        ({"number": 3}, ", number=3"),
        ({"number": 1, "after": 0}, ", number=1, after=0"),
        ({"against": "another user"}, ", against='another user'"),
        ({"call": "shop.book", "number": 1}, ', call="shop.book", number=1'),
        (
            {"call": "shop.book", "number": 1, "after": 0, "after_call": "shop.book"},
            ', call="shop.book", number=1, after=0',
        ),
        (
            {"call": "shop.book", "after": 2, "after_call": "shop.pay"},
            ', call="shop.book", after=2, after_call="shop.pay"',
        ),
    ],
)
def test_the_options_say_where_the_test_is_forked(fields: dict[str, Any], options: str) -> None:
    assert last(**fields) == f"(test_seats.test_booking{options})"


OTHER = TestPlace("shop.tests.test_shows", "test_cancelling", "CancelTests", ("show",))


def with_partner(partner: TestPlace, place: TestPlace = PLACE) -> list[str]:
    finding = confirmed("book", partner_test="test_it", partner_number=2)
    return write_test_file(finding, {"": place, "test_it": partner}).splitlines()


@pytest.mark.parametrize(
    "partner",
    [replace(OTHER, is_complete=False), replace(OTHER, is_parametrized=True), replace(OTHER, fixtures=("seat",))],
)
def test_a_test_that_cannot_be_run_before_another_one(partner: TestPlace) -> None:
    assert with_partner(partner, replace(PLACE, fixtures=("seat",))) == []
    assert lines(replace(PLACE, is_complete=False)) == []


# Items of pytest: those of this module


@pytest.fixture
def seat() -> str:
    return "A1"


@pytest.fixture(name="show")
def make_show() -> str:
    return "Hamlet"


@pytest.mark.parametrize("number", [1, 2])
def test_the_place_of_a_function(
    request: pytest.FixtureRequest, number: int, seat: str, show: str, tmp_path: object
) -> None:
    assert TestPlace.of(request.node) == TestPlace(
        __name__, "test_the_place_of_a_function", fixtures=("make_show", "seat"), is_parametrized=True
    )


class TestOfAClass:
    @pytest.fixture
    def row(self) -> int:
        return 1

    def setup_method(self) -> None:
        self.ready = True

    def test_with_a_fixture_of_the_class(self, request: pytest.FixtureRequest, row: int) -> None:
        assert not TestPlace.of(request.node).is_complete


def test_what_is_in_no_module_cannot_be_reproduced() -> None:
    assert not TestPlace.of(SimpleNamespace(name="a doctest")).is_complete
