"""Whole requests as actors."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from _pytest.outcomes import Failed
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from rest_framework.test import APIClient

from django_lockstep.lab.explorer import Response, Scenario, explore, request_actor
from django_lockstep.lab.pytest_plugin import RaceFixture
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop import views
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.testapps.shop.views")]


def at(name: str) -> Callable[[int], str]:
    return lambda pk: f"/{pk}/{name}/"


def booking(client: Any, name: str, **options: Any) -> list[stories.Actor]:
    return [request_actor(client.post, at(name), {"guest": guest}, **options) for guest in ("Ada", "Bob")]


def test_two_requests_race(race: RaceFixture) -> None:
    client = Client()

    with pytest.raises(Failed, match="returned status 201 instead of status 409"):
        race(*booking(client, "book"), set_up=stories.one_seat)
    result = race(
        race.request(client.post, at("book-locked")), *booking(client, "book-locked")[1:], set_up=stories.one_seat
    )

    assert result.verdict == "holds"
    assert {tuple(outcome.results.values()) for outcome in result.outcomes} == {
        ("status 201", "status 409"),
        ("status 409", "status 201"),
    }


def test_the_steps_of_an_asynchronous_view_have_its_lines_of_code() -> None:
    failure = explore(Scenario(set_up=stories.one_seat, actors=booking(Client(), "book-asynchronously"))).failure

    assert failure is not None
    line = inspect.getsourcelines(views.abook)[1]
    sources = {step.sql.split()[0]: step.source.rpartition("/")[2] for step in failure.steps}
    assert sources == {"SELECT": f"views.py:{line + 2}", "UPDATE": f"views.py:{line + 3}"}


def test_an_invariant_is_given_the_responses() -> None:
    def answered(pk: int, results: Mapping[str, Response], errors: Mapping[str, BaseException]) -> None:
        won, lost = sorted(results.values(), key=lambda response: response.status)
        assert (won, lost.status) == (Response(status=201, body=b"booked"), 409)
        assert lost.body.decode() == f"taken by {Seat.objects.get(pk=pk).guest}"

    scenario = Scenario(set_up=stories.one_seat, actors=booking(Client(), "book-locked"), invariant=answered)

    assert explore(scenario).verdict == "holds"


def test_a_login_in_the_set_up_is_every_actor_s_and_their_cookies_are_their_own() -> None:
    client = Client()

    def set_up() -> int:
        client.force_login(User.objects.get_or_create(username="ada")[0])
        return stories.one_seat()

    def by_ada(pk: int, results: Mapping[str, Response], errors: Mapping[str, BaseException]) -> bool:
        return Seat.objects.get(pk=pk).guest == "ada" and not errors

    actor = request_actor(client.post, at("book-as-user"))
    result = explore(Scenario(set_up=set_up, actors=[actor, actor], invariant=by_ada), directed=True)

    assert result.verdict == "nothing found"
    assert "booked" not in client.cookies


def test_the_client_decides_about_csrf() -> None:
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = "a" * 32
    with_token = booking(client, "book-locked", headers={"X-CSRFToken": "a" * 32})
    without = booking(client, "book-locked")

    allowed = explore(Scenario(set_up=stories.one_seat, actors=with_token))
    refused = explore(Scenario(set_up=stories.one_seat, actors=[with_token[0], without[1]]))

    assert allowed.verdict == "holds"
    assert {tuple(outcome.results.values()) for outcome in refused.outcomes} == {("status 201", "status 403")}


def test_rest_frameworks_client_is_one_too() -> None:
    client = APIClient()
    client.credentials(HTTP_X_FROM="here")

    assert explore(Scenario(set_up=stories.one_seat, actors=booking(client, "book-locked"))).verdict == "holds"


# Errors of views


def test_an_error_of_a_view_is_its_own_actor_s() -> None:
    def one_raised(pk: int, results: Mapping[str, Response], errors: Mapping[str, BaseException]) -> None:
        assert [response.status for response in results.values()] == [201]
        assert [str(error) for error in errors.values()] == [f"taken by {Seat.objects.get(pk=pk).guest}"]

    scenario = Scenario(set_up=stories.one_seat, actors=booking(Client(), "book-or-raise"), invariant=one_raised)

    # Without reduction, because to it the order of an error and another actor's read does not matter.
    assert explore(scenario, reduction="none").verdict == "holds"


def test_where_the_client_does_not_raise_the_status_is_500() -> None:
    client = Client(raise_request_exception=False)

    result = explore(Scenario(set_up=stories.one_seat, actors=booking(client, "book-or-raise")))

    assert result.verdict == "holds"
    assert {tuple(sorted(outcome.results.values())) for outcome in result.outcomes} == {("status 201", "status 500")}


def test_a_result_that_is_no_response_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="status_code and content, not str"):
        request_actor(lambda url: "ok", "/")(None)


# Other callables


def test_a_streaming_response_is_read() -> None:
    def streamed(pk: int, results: Mapping[str, Response], errors: Mapping[str, BaseException]) -> bool:
        return {response.body for response in results.values()} == {b"B"}

    actor = request_actor(Client().get, at("describe"))

    assert explore(Scenario(set_up=stories.one_seat, actors=[actor, actor], invariant=streamed)).verdict == "holds"


def test_a_handler_that_ends_old_connections_does_not_end_an_actor_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    connected: list[tuple[object, object]] = []

    def handle(pk: int) -> HttpResponse:
        before = connection.connection
        request_started.send(sender=None, environ={})
        response = views.book_locked(RequestFactory().post("/"), pk)
        response.close()  # sends request_finished
        connected.append((before, connection.connection))
        return response

    actor = request_actor(handle, lambda pk: pk)
    result = explore(Scenario(set_up=stories.one_seat, actors=[actor, actor]))

    assert (result.verdict, result.errors) == ("holds", {})
    assert all(before is after is not None for before, after in connected)


@pytest.mark.parametrize("signal", [request_started, request_finished])
@pytest.mark.parametrize("before", [True, False])
def test_what_an_abandoned_request_has_disconnected_is_connected_again(signal: Any, before: bool) -> None:
    def abandoned_in_between(pk: int) -> None:
        signal.disconnect(close_old_connections)
        stories.computed(pk)

    if not before:
        signal.disconnect(close_old_connections)
    try:
        explore(Scenario(set_up=stories.one_seat, actors=[abandoned_in_between] * 2))
        assert signal.disconnect(close_old_connections) is before
    finally:
        signal.connect(close_old_connections)
