"""Answers of requests and calls: an answer of no serial order is a race, unless it says to try again."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpResponse, HttpResponseRedirect

from django_lockstep.lab.explorer import Exploration
from django_lockstep.lab.finder.confirm.forks import Fork, RequestActor
from tests.testapps.seeded_shop.correct.models import Coupon

pytestmark = pytest.mark.django_db(transaction=True)


def taken() -> bool:
    """Take the only use, unless it is taken; the row ends the same, by whom and how often it may be taken."""
    coupon = Coupon.objects.get()
    if coupon.used:
        return False
    coupon.used = 1
    coupon.save()
    return True


def take(answer: Callable[[], HttpResponse] = HttpResponse) -> HttpResponse:
    return answer() if taken() else HttpResponse(status=409)


def take_to_next() -> HttpResponse:
    return HttpResponseRedirect(f"/uses/{int(taken())}/")


def create_and_look_again() -> None:
    with transaction.atomic():
        if not Coupon.objects.filter(code="TEA").exists():
            with suppress(IntegrityError):
                Coupon.objects.create(code="TEA")
        Coupon.objects.count()


def explored(actor: Callable[..., Any], *, is_request: bool) -> Exploration:
    Coupon.objects.create(code="SPRING")
    racer: Any = RequestActor({}, b"", lambda environ: actor()) if is_request else lambda fixture: actor()
    return Fork({"A": racer, "B": racer}).explore(seconds=20)


@pytest.mark.parametrize(
    ("actor", "is_request", "difference"),
    [
        pytest.param(take, True, "B returned status 200 instead of status 409", id="status"),
        pytest.param(
            take_to_next, True, "B returned status 302 to /uses/1/ instead of status 302 to /uses/0/", id="location"
        ),
        pytest.param(
            lambda: take(lambda: HttpResponseRedirect(f"/{uuid4()}/")),
            True,
            "B returned status 302 instead of status 409",
            id="status beside a token in the location",
        ),
        pytest.param(taken, False, "B returned True instead of False", id="bool"),
        pytest.param(lambda: int(taken()) / 2, False, "B returned 0.5 instead of 0.0", id="number"),
        pytest.param(lambda: Coupon() if taken() else None, False, "B returned Coupon instead of nothing", id="None"),
        pytest.param(create_and_look_again, False, "A raised TransactionManagementError", id="error"),
    ],
)
def test_an_answer_of_no_serial_order_is_a_race(actor: Callable[[], Any], is_request: bool, difference: str) -> None:
    exploration = explored(actor, is_request=is_request)

    assert exploration.verdict == "broken"
    # Whichever of the two it is.
    assert {text[1:] for outcome in exploration.outcomes for text in outcome.differences} == {difference[1:]}


def change(status: int, *, writes: bool) -> HttpResponse:
    """Answer with this status if another request came in between."""
    coupon = Coupon.objects.get()
    if not Coupon.objects.filter(used=coupon.used).update(used=F("used") + 1):
        if writes:
            Coupon.objects.create(code="conflict")
        return HttpResponse(status=status)
    return HttpResponse()


@pytest.mark.parametrize(
    ("status", "writes", "verdict"),
    [
        *((status, False, "nothing found") for status in (409, 423, 425, 429, 503)),
        (400, False, "broken"),
        (409, True, "broken"),
    ],
)
def test_who_answers_that_another_one_was_in_the_way_and_wrote_nothing_counts_as_not_there(
    status: int, writes: bool, verdict: str
) -> None:
    assert explored(lambda: change(status, writes=writes), is_request=True).verdict == verdict
