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

from django_lockstep import runtime_checks as runtime_checks_module
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
    for method in [method for method in runtime_checks_module._METHODS if method in runtime_checks_module._installed]:
        module, owner, name, _ = method
        place: Any = getattr(import_module(module), owner) if owner else import_module(module)
        setattr(place, name, getattr(place, name).__wrapped__)
        runtime_checks_module._installed.remove(method)


def reported(call: Callable[[], object]) -> str:
    """Return the name of the report for the call; empty if there is none."""
    try:
        with runtime_checks("raise"):
            call()
    except RuntimeCheckFailed as failed:
        name, line, text = failed.args
        first, lines = inspect.getsourcelines(call)[1], len(inspect.getsourcelines(call)[0])
        path, _, number = line.rpartition(":")
        assert (Path(path), first <= int(number) <= first + lines) == (Path(__file__), True), line
        assert text
        return str(name)
    return ""


def sleep() -> None:
    time.sleep(0)


def mail() -> None:
    send_mail("s", "t", "a@b.example", ["c@d.example"])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    handler = type("Handler", (BaseHTTPRequestHandler,), {"log_message": lambda *args: None})
    server = HTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("call", [sleep, mail])
def test_a_call_in_a_transaction_is_reported_and_not_made(call: Callable[[], None], mailoutbox: list[Any]) -> None:
    def inside() -> None:
        with transaction.atomic():
            call()

    def after() -> None:
        with transaction.atomic():
            transaction.on_commit(call)

    report = pytest.raises(RuntimeCheckFailed, match=r"test_runtime_checks.py:\d+: .* \(open-transaction\)")
    with report, runtime_checks("raise"):
        inside()
    assert mailoutbox == []
    assert reported(call) == reported(after) == ""
    inside()  # outside of blocks nothing is checked


def test_an_http_request_is_heard_whatever_sends_it(address: str) -> None:
    def request() -> None:
        with closing(http.client.HTTPConnection(address)) as connection:
            connection.request("GET", "/")
            connection.getresponse().read()

    def inside() -> None:
        with transaction.atomic(), closing(http.client.HTTPConnection(address)) as connection:
            connection.request("GET", "/")

    assert reported(request) == ""
    assert reported(inside) == "open-transaction"


@pytest.mark.django_db
def test_the_transaction_of_a_test_case_is_none() -> None:
    Place.objects.create()
    assert reported(sleep) == ""
    assert reported(lambda: list(Place.objects.select_for_update())) == "no-transaction"


def test_a_lock_in_a_transaction_is_in_order() -> None:
    Place.objects.create()

    def lock() -> None:
        with transaction.atomic():
            list(Place.objects.select_for_update())
            Place.objects.count()

    assert reported(lock) == ""


@pytest.mark.parametrize("ask", ["count", "exists", "aggregate"])
def test_a_question_about_rows_to_lock_locks_none_of_them(ask: str) -> None:
    def question() -> None:
        with transaction.atomic():
            getattr(Place.objects.select_for_update(), ask)()

    assert reported(question) == "no-lock"


# An instance that was read before its row was locked.


def rename(*, again: bool) -> None:
    place = Place.objects.get()
    with transaction.atomic():
        locked = Place.objects.select_for_update().get(pk=place.pk)
        place = locked if again else place
        place.name += "x"
        place.save()


def rename_the_copy() -> None:
    rename(again=False)


def rename_the_locked() -> None:
    rename(again=True)


def rename_after_a_look() -> None:
    place = Place.objects.get()
    with transaction.atomic():
        Place.objects.select_for_update().get(pk=place.pk)
        place.refresh_from_db()
        place.save()


def test_a_copy_from_before_the_lock_is_reported_when_it_is_saved() -> None:
    Place.objects.create(name="a")
    with pytest.raises(RuntimeCheckFailed, match="late-lock"), runtime_checks("raise"):
        rename_the_copy()
    for right in (rename_the_locked, rename_after_a_look):
        with runtime_checks("raise"):
            right()


def test_what_is_reported_loses_an_update_and_what_is_not_does_not(race: RaceFixture) -> None:
    Place.objects.create()

    def both_are_there() -> None:
        assert Place.objects.get().name == "xx"

    assert race(rename_the_locked, rename_the_locked, invariant=both_are_there).verdict == "holds"
    with pytest.raises(pytest.fail.Exception, match="BROKEN|broken"):
        race(rename_the_copy, rename_the_copy, invariant=both_are_there)


@pytest.mark.parametrize("model", [Seat, PlainSeat])
def test_a_versioned_instance_is_compared_anyway(model: Any) -> None:
    seat = model.objects.create()

    def save() -> None:
        with transaction.atomic():
            model.objects.select_for_update().get(pk=seat.pk)
            seat.save()

    assert reported(save) == ""


# A row that is looked for and then made.


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
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["(open-transaction)"]
    assert "test_runtime_checks.py:" in caplog.text


def test_lines_of_some_files_are_not_reported() -> None:
    with runtime_checks("raise", except_in=r"test_\w+\.py$"), transaction.atomic():
        sleep()
    with pytest.raises(RuntimeCheckFailed), runtime_checks("raise", except_in=r"another\.py$"), transaction.atomic():
        sleep()


def test_the_middleware_checks_requests(settings: Any) -> None:
    with pytest.raises(MiddlewareNotUsed):
        RuntimeCheckMiddleware(lambda request: HttpResponse())
    settings.LOCKSTEP_WARN = "raise"

    def view(request: object) -> HttpResponse:
        with transaction.atomic():
            sleep()
        return HttpResponse()

    with pytest.raises(RuntimeCheckFailed) as caught:
        RuntimeCheckMiddleware(view)(RequestFactory().get("/"))
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert str(again) == str(caught.value)


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
@pytest.mark.parametrize("call", [rooms.find, rooms.send])
def test_it(call): call()

@pytest.mark.django_db
@transaction.atomic
def test_lines_of_tests_are_not_reported(): time.sleep(0)
""",
}


def test_pytest_has_an_option_and_knows_celery(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "django_lockstep.lab.pytest_plugin", "--ds=settings"]
    done = subprocess.run(
        [*command, "--lockstep-warn=raise"],
        cwd=tmp_path,
        env=foreign_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    for line in (r"rooms.py:6: two calls .* \(no-constraint\)", r"rooms.py:9: tell .* \(open-transaction\)"):
        assert re.search(line, done.stdout)
