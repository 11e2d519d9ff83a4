"""Interception of requests."""

from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from django_lockstep.lab.finder.record.interception import CallNext, buffer_body, current_request, intercept

urlpatterns = [path("echo/", lambda request: HttpResponse(request.body))]

pytestmark = pytest.mark.usefixtures("_urls")


@pytest.fixture
def _urls() -> Any:
    with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[]):
        yield


def post(body: str) -> bytes:
    return bytes(Client().post("/echo/", body, content_type="text/plain").content)


def test_a_request_can_be_answered_several_times() -> None:
    def twice(handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        body = buffer_body(environ)
        first = call_next({**environ, "wsgi.input": BytesIO(body)})
        second = call_next(environ)
        second.content = first.content + second.content
        return second

    with intercept(twice):
        assert post("hello") == b"hellohello"
    assert post("hello") == b"hello"


@pytest.mark.django_db  # the handler looks after connections that an earlier test has left open
def test_a_wsgi_servers_request_is_intercepted_too() -> None:
    started: list[str] = []
    seen: list[str] = []

    def start(status: str, *args: Any) -> Any:
        started.append(status)

    def watch(handler: object, environ: dict[str, Any], call_next: CallNext) -> Any:
        assert current_request() is None
        call_next({**environ, "PATH_INFO": "/unknown/"})
        response = call_next(environ)
        request = current_request()
        seen.append(request.path if request else "")
        return response

    environ = RequestFactory().post("/echo/", "hello", content_type="text/plain").environ
    with intercept(watch):
        response = WSGIHandler()(environ, start)

    assert (started, seen, b"".join(response)) == (["200 OK"], ["/echo/"], b"hello")
    assert current_request() is None


def test_a_body_without_length_is_left_alone() -> None:
    stream = object()
    environ = {"CONTENT_LENGTH": "", "wsgi.input": stream}

    assert buffer_body(environ) == b""
    assert environ["wsgi.input"] is stream
