"""What must not happen while a transaction is open is reported at its line, and nothing else is."""

import http.client
import inspect
import logging
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.exceptions import MiddlewareNotUsed
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpResponse
from django.test import RequestFactory

from django_lockstep import runtime_checks as module
from django_lockstep.checks import check_runtime_checks
from django_lockstep.errors import RuntimeCheckFailed
from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.runtime_checks import RuntimeCheckMiddleware, runtime_checks
from tests.support.processes import foreign_environment
from tests.testapps.shop.models import Place, PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module", autouse=True)
def _unwrapped_afterwards() -> Iterator[None]:
    """Leave Django to the other tests of this process as it was; the audit hook stays, and does nothing."""
    yield
    for method in [method for method in module._METHODS if method in module._installed]:
        package, owner, name, _ = method
        place: Any = getattr(import_module(package), owner) if owner else import_module(package)
        setattr(place, name, getattr(place, name).__wrapped__)
        module._installed.remove(method)


def reported(call: Callable[[], object]) -> str:
    """Return the name of the report for a line of the call; empty if there is none."""
    try:
        with runtime_checks("raise"):
            call()
    except RuntimeCheckFailed as failed:
        name, line, text = failed.args
        code, first = inspect.getsourcelines(call)
        path, _, number = line.rpartition(":")
        assert (path, first <= int(number) <= first + len(code), bool(text)) == (__file__, True, True), line
        return str(name)
    return ""


def sleep() -> None:
    time.sleep(0)


def mail() -> None:
    send_mail("s", "t", "a@b.example", ["c@d.example"])


@pytest.mark.parametrize("call", [sleep, mail])
def test_a_call_in_a_transaction_is_reported_and_not_made(call: Callable[[], None], mailoutbox: list[Any]) -> None:
    def after() -> None:
        with transaction.atomic():
            transaction.on_commit(call)

    inside = transaction.atomic(call)
    report = pytest.raises(RuntimeCheckFailed, match=r"test_runtime_checks.py:\d+: .* \(open-transaction\)")
    with report, runtime_checks("raise"):
        inside()
    assert mailoutbox == []
    assert reported(call) == reported(after) == ""
    inside()  # outside of blocks nothing is checked


def test_an_http_request_is_heard_whatever_sends_it() -> None:
    handler = type("Handler", (BaseHTTPRequestHandler,), {"log_message": lambda *args: None})

    def request() -> None:
        with closing(http.client.HTTPConnection(*server.server_address)) as client:
            client.request("GET", "/")
            client.getresponse().read()

    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert reported(request) == ""
        with transaction.atomic():
            assert reported(request) == "open-transaction"
        server.shutdown()


@pytest.mark.django_db
def test_the_transaction_of_a_test_case_is_none() -> None:
    Place.objects.create()
    assert reported(sleep) == ""
    assert reported(lambda: list(Place.objects.select_for_update())) == "no-transaction"


def test_a_lock_in_a_transaction_is_in_order() -> None:
    Place.objects.create()
    with transaction.atomic():
        assert reported(lambda: [*Place.objects.select_for_update(), Place.objects.count()]) == ""


@pytest.mark.parametrize("ask", ["count", "exists", "aggregate"])
def test_a_question_about_rows_to_lock_locks_none_of_them(ask: str) -> None:
    with transaction.atomic():
        assert reported(lambda: getattr(Place.objects.select_for_update(), ask)()) == "no-lock"  # noqa: PLW0108 - a line of ours


# An instance that was read before its row was locked.


def rename_the_copy() -> None:
    place = Place.objects.get()
    with transaction.atomic():
        Place.objects.select_for_update().get(pk=place.pk)
        place.name += "x"
        place.save()


def rename_the_locked() -> None:
    place = Place.objects.get()
    with transaction.atomic():
        place = Place.objects.select_for_update().get(pk=place.pk)
        place.name += "x"
        place.save()


def rename_after_a_look() -> None:
    place = Place.objects.get()
    with transaction.atomic():
        Place.objects.select_for_update().get(pk=place.pk)
        place.refresh_from_db()
        place.save()


def test_a_copy_from_before_the_lock_is_reported_when_it_is_saved() -> None:
    Place.objects.create(name="a")
    assert reported(rename_the_copy) == "late-lock"
    assert reported(rename_the_locked) == reported(rename_after_a_look) == ""


def test_what_is_reported_loses_an_update_and_what_is_not_does_not(race: RaceFixture) -> None:
    Place.objects.create()

    def both_are_there() -> None:
        assert Place.objects.get().name == "xx"

    assert race(rename_the_locked, rename_the_locked, invariant=both_are_there).verdict == "holds"
    with pytest.raises(pytest.fail.Exception, match="broken"):
        race(rename_the_copy, rename_the_copy, invariant=both_are_there)


@pytest.mark.parametrize("model", [Seat, PlainSeat])
def test_a_versioned_instance_is_compared_anyway(model: Any) -> None:
    seat = model.objects.create()
    with transaction.atomic():
        assert reported(lambda: (model.objects.select_for_update().get(pk=seat.pk), seat.save())) == ""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Place.objects.get_or_create(name="a"), "no-constraint"),
        (lambda: Place.objects.filter(name="a").get_or_create(defaults={"name": "a"}), "no-constraint"),
        (lambda: Place.objects.update_or_create(name="a"), "no-constraint"),
        (lambda: Place.objects.get_or_create(pk=7), ""),
        (lambda: Place.objects.get_or_create(id__exact=7, name="a"), ""),
    ],
)
def test_get_or_create_needs_a_constraint(call: Callable[[], object], name: str) -> None:
    assert reported(call) == name


# Where it is switched on.


def test_a_log_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lockstep.runtime_checks"), runtime_checks("log"), transaction.atomic():
        sleep()
        with runtime_checks(None):
            sleep()
    (message,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"test_runtime_checks.py:\d+: .* \(open-transaction\)$", message)


def test_lines_of_some_files_are_not_reported() -> None:
    with runtime_checks("raise", except_in=r"test_\w+\.py$"), transaction.atomic():
        sleep()
    with pytest.raises(RuntimeCheckFailed), runtime_checks("raise", except_in=r"another\.py$"), transaction.atomic():
        sleep()


def test_the_middleware_checks_requests(settings: Any) -> None:
    def view(request: object) -> HttpResponse:
        sleep()
        return HttpResponse()

    with pytest.raises(MiddlewareNotUsed):
        RuntimeCheckMiddleware(view)
    settings.LOCKSTEP_WARN = "raise"
    with pytest.raises(RuntimeCheckFailed) as caught:
        RuntimeCheckMiddleware(transaction.atomic(view))(RequestFactory().get("/"))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own


@pytest.mark.parametrize(("mode", "ids"), [(None, []), ("log", []), ("warn", ["lockstep.E005"])])
def test_a_setting_that_is_no_mode_is_found(settings: Any, mode: str | None, ids: list[str]) -> None:
    settings.LOCKSTEP_WARN = mode
    assert [message.id for message in check_runtime_checks(None)] == ids


FILES = {
    "settings.py": """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes"]
""",
    "celery/app/task.py": """
class Task:
    name = "tell"

    def apply_async(self):
        raise AssertionError("it was sent")
""",
    "rooms.py": """
from celery.app.task import Task
from django.contrib.auth.models import User
from django.db import transaction

def find(): User.objects.get_or_create(first_name="Ada")

@transaction.atomic
def send(): Task().apply_async()
""",
    "test_it.py": """
import time, pytest, rooms
from django.db import transaction

@pytest.mark.django_db
@pytest.mark.parametrize("call", [rooms.find, rooms.send, transaction.atomic(lambda: time.sleep(0))])
def test_it(call): call()
""",
}


def test_pytest_has_an_option_and_knows_celery(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    options = ["-p", "django_lockstep.lab.pytest_plugin", "--ds=settings", "--lockstep-warn=raise"]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=tmp_path, env=foreign_environment(), capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert re.search(r"rooms.py:6: two calls .* \(no-constraint\)", done.stdout)
    assert re.search(r"rooms.py:9: tell .* \(open-transaction\)", done.stdout)
