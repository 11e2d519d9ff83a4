"""Conditional requests, the same for every kind of view."""

import json
from functools import partial
from typing import Any

import pytest
from django.db import connection, models
from django.test import AsyncClient, Client
from rest_framework import serializers
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.test import APIRequestFactory

from django_lockstep.http import MalformedPrecondition, etag
from django_lockstep.http.drf import problem_handler
from django_lockstep.http.preconditions import ANY, parse_tags, same_weak
from django_lockstep.locking import LockNotAvailable, StaleVersionError
from tests.support.sessions import Gate, Session, overtaken
from tests.testapps.shop.models import OddSeat, Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.http.views")]

READABLE = ["plain", "class", "rest", "problems", "generic", "generic/problems"]
KINDS = [*READABLE, "ninja/seats"]


@pytest.fixture
def seat(db: None) -> Seat:
    return Seat.objects.create(guest="Ada")


def put(url: str, guest: str = "Bob", **headers: str) -> Any:
    return Client().put(url, json.dumps({"guest": guest}), content_type="application/json", headers=headers)


@pytest.mark.parametrize("kind", KINDS)
class TestPut:
    def test_with_the_current_tag_it_writes_and_answers_with_the_new_tag(self, kind: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}", **{"If-Match": etag(seat)})
        seat.refresh_from_db()
        assert (response.status_code, response.headers["ETag"], seat.guest) == (200, etag(seat), "Bob")

    def test_without_a_condition_it_is_428_with_problem_details(self, kind: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}")
        seat.refresh_from_db()
        assert (response.status_code, seat.guest) == (428, "Ada")
        assert response.headers["Content-Type"] == "application/problem+json"
        problem = response.json()
        assert (problem["status"], problem["title"], problem["type"]) == (428, "Precondition Required", "about:blank")

    def test_with_another_tag_it_is_412_and_tells_the_current_one(self, kind: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}", **{"If-Match": f'"{seat.pk}.7"'})
        assert (response.status_code, response.headers["ETag"]) == (412, etag(seat))

    def test_a_weak_tag_is_a_condition_that_does_not_hold(self, kind: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}", **{"If-Match": f"W/{etag(seat)}"})
        seat.refresh_from_db()
        assert (response.status_code, response.headers["ETag"], seat.guest) == (412, etag(seat), "Ada")
        assert "weak" in response.json()["detail"]

    @pytest.mark.parametrize("header", ["3", '"a'])
    def test_with_a_malformed_tag_it_is_400(self, kind: str, header: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}", **{"If-Match": header})
        seat.refresh_from_db()
        assert (response.status_code, seat.guest) == (400, "Ada")

    def test_a_malformed_tag_is_400_whatever_the_other_header_says(self, kind: str, seat: Seat) -> None:
        response = put(f"/{kind}/{seat.pk}", **{"If-Match": f'"{seat.pk}.7"', "If-None-Match": "3"})
        assert response.status_code == 400


@pytest.mark.parametrize("kind", READABLE)
class TestGet:
    def test_it_tells_the_tag(self, kind: str, seat: Seat) -> None:
        assert Client().get(f"/{kind}/{seat.pk}").headers["ETag"] == etag(seat)

    def test_what_the_client_has_is_304(self, kind: str, seat: Seat) -> None:
        response = Client().get(f"/{kind}/{seat.pk}", headers={"If-None-Match": f'W/{etag(seat)}, "x"'})
        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag(seat))

    def test_what_it_does_not_have_is_sent(self, kind: str, seat: Seat) -> None:
        assert Client().get(f"/{kind}/{seat.pk}", headers={"If-None-Match": '"x"'}).status_code == 200


class TestCreate:
    def test_only_with_if_none_match(self, db: None) -> None:
        assert put("/plain/4711").status_code == 428
        assert not Seat.objects.filter(pk=4711).exists()

    def test_it_creates_once(self, db: None) -> None:
        first, second = (put("/plain/4711", **{"If-None-Match": "*"}) for _ in range(2))
        assert (first.status_code, first.headers["ETag"]) == (201, '"4711.1"')
        assert (second.status_code, second.headers["ETag"]) == (412, '"4711.1"')

    @pytest.mark.parametrize("kind", ["plain", "generic"])
    def test_nothing_can_match_what_is_not_there(self, kind: str, db: None) -> None:
        response = put(f"/{kind}/4711", **{"If-Match": "*"})
        assert (response.status_code, response.headers.get("ETag")) == (412, None)

    @pytest.mark.parametrize("kind", ["plain", "generic"])
    def test_other_methods_find_nothing(self, kind: str, db: None) -> None:
        assert Client().delete(f"/{kind}/4711").status_code == 404

    def test_the_transaction_of_the_request_outlives_a_lost_race(self, monkeypatch: Any, db: None) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        Seat.objects.create(pk=4711)
        answers = iter([None, Seat.objects.get(pk=4711)])
        monkeypatch.setattr("tests.django_lockstep.http.views.Seat.objects.filter", lambda **_: _First(answers))
        assert put("/plain/4711", **{"If-None-Match": "*"}).status_code == 412


class _First:
    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def first(self) -> Any:
        return next(self._answers)


@pytest.mark.parametrize("kind", ["plain", "generic"])
class TestDelete:
    def test_only_in_the_version_seen(self, kind: str, seat: Seat) -> None:
        assert Client().delete(f"/{kind}/{seat.pk}").status_code == 428
        stale = Client().delete(f"/{kind}/{seat.pk}", headers={"If-Match": '"1.99"'})
        done = Client().delete(f"/{kind}/{seat.pk}", headers={"If-Match": etag(seat)})
        assert (stale.status_code, done.status_code, Seat.objects.count()) == (412, 204, 0)
        assert "ETag" not in done.headers


@pytest.mark.parametrize("kind", ["async", "async-class"])
def test_async_views_are_guarded_too(kind: str, seat: Seat) -> None:
    async def ask(tag: str) -> Any:
        return await AsyncClient().put(
            f"/{kind}/{seat.pk}",
            json.dumps({"guest": "Bob"}),
            content_type="application/json",
            headers={"If-Match": tag},
        )

    from asgiref.sync import async_to_sync

    assert async_to_sync(ask)(etag(seat)).headers["ETag"] == f'"{seat.pk}.2"'
    assert async_to_sync(ask)(etag(seat)).status_code == 412


class TestBetweenCheckAndWrite:
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_change_is_412(self, kind: str, seat: Seat, other: Session) -> None:
        ask = partial(put, f"/{kind}/{seat.pk}", **{"If-Match": etag(seat)})
        response = overtaken(other, Gate("UPDATE"), partial(Seat.objects.update, guest="Eve"), ask)
        seat = Seat.objects.get(pk=seat.pk)
        assert (response.status_code, response.headers["ETag"], seat.guest) == (412, etag(seat), "Eve")

    def test_a_conflict_of_another_row_is_none_of_the_condition(self, seat: Seat) -> None:
        response = put(f"/elsewhere/{seat.pk}", **{"If-Match": etag(seat)})
        assert (response.status_code, "ETag" in response.headers) == (409, False)

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("kind", ["careless", "generic/careless"])
    def test_the_request_is_rolled_back(self, kind: str, seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
        assert put(f"/{kind}/{seat.pk}", **{"If-Match": etag(seat)}).status_code == 412
        assert (OddSeat.objects.count(), Seat.objects.get().guest) == (0, "Ada")


# Entity tags: what they are made of, and how headers are read


def test_a_tag_is_of_key_and_version() -> None:
    seat = Seat.objects.create()
    assert etag(seat) == f'"{seat.pk}.1"'
    seat.guest = "Ada"
    seat.save()
    assert etag(seat) == f'"{seat.pk}.2"'


@pytest.mark.parametrize("code", ['a"b', "a,b", "a b", "ü", "a.1", "W/"])
def test_any_key_makes_a_tag_that_is_read_back(code: str) -> None:
    tag = etag(OddSeat.objects.create(code=code))
    assert parse_tags(tag) == (tag,)


def test_what_was_never_saved_has_no_tag() -> None:
    with pytest.raises(ValueError, match="never saved"):
        etag(Seat())


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ('"1.2"', ('"1.2"',)),
        ('"a", "b"', ('"a"', '"b"')),
        (' ,"a",, W/"b" ,', ('"a"', 'W/"b"')),
        ('""', ('""',)),
        ('"a,b"', ('"a,b"',)),
        ("*", ANY),
        (" * ", ANY),
    ],
)
def test_lists_of_tags_are_read(header: str, tags: tuple[str, ...]) -> None:
    assert parse_tags(header) == tags


LONG = " " * 100_000 + "," + '"a",' * 10_000 + " " * 100_000 + "x"
"""A header that is read in no time."""


@pytest.mark.parametrize(
    "header",
    [pytest.param(LONG, id="long"), "", "3", '"a" "b"', '"a', 'a"', '*, "a"', "W/3", 'w/"a"', '"a b"', ",", '"a"; x'],
)
def test_everything_else_is_malformed(header: str) -> None:
    with pytest.raises(MalformedPrecondition):
        parse_tags(header)


def test_if_none_match_compares_weakly() -> None:
    assert same_weak('"a"', ('W/"a"',))
    assert same_weak('"a"', ANY)


def test_a_version_read_later_makes_no_tag(db: None) -> None:
    seat: models.Model = Seat.objects.defer("version").get(pk=Seat.objects.create().pk)
    with pytest.raises(ValueError, match="without its 'version'"):
        etag(seat)


# Django REST framework's errors as problem details


NAMES = ["type", "title", "status", "detail", "instance", "code", "guest"]


def told(error: Exception) -> Any:
    """Return what the handler answers, as a client reads it."""
    response = problem_handler(error, {"request": APIRequestFactory().put("/")})
    assert response["Content-Type"] == "application/problem+json"
    return json.loads(response.content)


def test_the_errors_of_fields_are_told_apart_from_the_problem() -> None:
    form = type("Form", (serializers.Serializer,), {name: serializers.IntegerField() for name in NAMES})
    with pytest.raises(ValidationError) as caught:
        form(data={}).is_valid(raise_exception=True)
    assert told(caught.value) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "invalid",
        "errors": {name: ["This field is required."] for name in NAMES},
    }


def test_errors_of_no_field_are_a_list() -> None:
    assert told(ValidationError(["Too late.", "Too loud."]))["errors"] == ["Too late.", "Too loud."]


def test_other_errors_tell_what_went_wrong() -> None:
    problem = told(NotFound("No such seat."))
    assert (problem["status"], problem["detail"], problem["code"]) == (404, "No such seat.", "not_found")


def test_what_else_an_error_tells_replaces_nothing() -> None:
    problem = told(APIException({"detail": "Broken.", "status": "broken", "since": "noon"}))
    assert (problem["status"], problem["detail"], problem["since"]) == (500, "Broken.", "noon")


@pytest.mark.parametrize(("error", "status"), [(StaleVersionError(model=Seat, pk=1), 409), (LockNotAvailable(), 503)])
def test_conflicts_have_their_status(error: Exception, status: int) -> None:
    assert told(error)["status"] == status


def test_a_generic_view_asks_for_permission_before_it_tells_a_tag(seat: Seat) -> None:
    for headers in ({}, {"If-Match": '"1.99"'}, {"If-None-Match": etag(seat)}):
        for method in ("get", "put", "delete"):
            response = getattr(Client(), method)(f"/generic/staff/{seat.pk}", headers=headers)
            assert (response.status_code, "ETag" in response.headers) == (403, False)


def test_a_generic_view_needs_no_tag_to_describe_itself_or_to_refuse_a_body(seat: Seat) -> None:
    assert Client().options(f"/generic/{seat.pk}").status_code == 200
    long = {"guest": "x" * 99}
    response = Client().put(f"/generic/{seat.pk}", long, "application/json", headers={"If-Match": etag(seat)})
    assert (response.status_code, list(response.json()), "ETag" in response.headers) == (400, ["guest"], False)
