"""Limits with which a count is compared: found on the stack, and lowered to one more than is counted."""

from collections.abc import Callable

import pytest
from django.conf import settings
from django.db.models import Q
from django.test import override_settings

from django_lockstep.lab.finder.confirm.limits import find_limit
from django_lockstep.lab.finder.errors import CannotClone
from tests.testapps.seeded_shop.racing.models import Show

pytestmark = pytest.mark.django_db(transaction=True)

MOST = 30


class Hall:
    most = 40
    fewest = "none"

    def by_class(self) -> bool:
        return Show.objects.count() >= self.most

    def by_name(self) -> bool:
        return Show.objects.count() == self.fewest


def by_module() -> bool:
    return Show.objects.count() < MOST


def by_variable() -> bool:
    number = (
        Show.objects.filter(title="Hamlet")
        .filter(~Q(title="Macbeth"))
        .count()
    )  # fmt: skip
    return number >= MOST


def by_setting() -> bool:
    if (number := Show.objects.count()) == 0:
        return False
    return number > settings.MOST_SHOWS  # type: ignore[misc, no-any-return]


def by_local() -> bool:
    most = 20
    return Show.objects.count() >= most


def not_compared() -> int:
    return Show.objects.count()


def found_one_by_one() -> bool:
    return len(Show.objects.all()) >= MOST


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (by_module, "MOST is 2, not 30"),
        (by_variable, "MOST is 2, not 30"),
        (Hall().by_class, "most is 2, not 40"),
        (by_setting, "MOST_SHOWS is 2, not 50"),
    ],
)
@override_settings(MOST_SHOWS=50)
def test_a_limit_is_lowered_for_a_while(function: Callable[[], object], text: str) -> None:
    Show.objects.create(title="Hamlet")
    limit = find_limit(lambda fixture: function())  # type: ignore[arg-type]
    assert str(limit) == text
    with limit.lowered():
        assert getattr(limit.owner, limit.name) == 2
    assert getattr(limit.owner, limit.name) == limit.number


@pytest.mark.parametrize("function", [by_local, not_compared, found_one_by_one, Hall().by_name])
def test_what_is_no_limit(function: Callable[[], object]) -> None:
    with pytest.raises(CannotClone, match="compared with no larger constant"):
        find_limit(lambda fixture: function())  # type: ignore[arg-type]


def test_a_limit_that_is_near_stays() -> None:
    for number in range(MOST - 1):
        Show.objects.create(title=str(number))
    with pytest.raises(CannotClone):
        find_limit(lambda fixture: by_module())  # type: ignore[arg-type]
