"""Django REST framework's errors as problem details."""

import json
from typing import Any

import pytest
from django.test import Client
from rest_framework import serializers
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.test import APIRequestFactory

from django_lockstep.http import etag
from django_lockstep.http.drf import problem_handler
from django_lockstep.locking import LockNotAvailable, StaleVersionError
from tests.testapps.shop.models import Seat

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


@pytest.mark.django_db
@pytest.mark.urls("tests.django_lockstep.http.views")
def test_a_generic_view_asks_for_permission_before_it_tells_a_tag() -> None:
    seat = Seat.objects.create()
    for headers in ({}, {"If-Match": '"1.99"'}, {"If-None-Match": etag(seat)}):
        for method in ("get", "put", "delete"):
            response = getattr(Client(), method)(f"/generic/staff/{seat.pk}", headers=headers)
            assert (response.status_code, "ETag" in response.headers) == (403, False)


@pytest.mark.django_db
@pytest.mark.urls("tests.django_lockstep.http.views")
def test_a_generic_view_needs_no_tag_to_describe_itself_or_to_refuse_a_body() -> None:
    seat = Seat.objects.create()
    assert Client().options(f"/generic/{seat.pk}").status_code == 200
    long = {"guest": "x" * 99}
    response = Client().put(f"/generic/{seat.pk}", long, "application/json", headers={"If-Match": etag(seat)})
    assert (response.status_code, list(response.json()), "ETag" in response.headers) == (400, ["guest"], False)
