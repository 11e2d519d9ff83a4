"""``manage.py demo``: a start that can be repeated, with something in every room."""

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core import serializers
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import path, reverse

from accounts.models import Account
from bank import waits
from bank.demo_data import create_demo_data, create_superuser
from bank.login import log_in_as_admin
from bank.models import Article
from bank.urls import urlpatterns as others
from bank.waits import make_one_wait
from django_lockstep.editing import status_of
from django_lockstep.leases.models import Lease
from tests.bank.processes import environment
from tests.support.pages import ROOT
from tests.support.processes import free_port, listens_on
from tests.support.sessions import PATIENCE, all_others_are_idle, until

# With the addresses that the command has in addition.
urlpatterns = [
    *others,
    path("login/", log_in_as_admin, name="demo-login"),
    path("waits/", make_one_wait, name="demo-waits"),
]


def rows() -> str:
    """Return every row of every table."""
    models = [model for model in apps.get_models() if model._meta.managed]
    return str(serializers.serialize("json", [row for model in models for row in model._base_manager.order_by("pk")]))


@pytest.fixture
def demo(transactional_db: None) -> str:
    create_demo_data()
    password = create_superuser()
    assert password
    return password


@pytest.mark.usefixtures("demo")
def test_every_room_has_something_to_see() -> None:
    assert sorted(account.entries.count() for account in Account.objects.all()) == [3, 3]
    call_command("reconcile", stdout=StringIO())  # raises where a balance is not what its entries say
    assert [lease.key for lease in Lease.objects.held()] == ["nightly-report"]
    first = Article.objects.order_by("pk").first()
    assert status_of(first).holder == "grace"


@pytest.mark.usefixtures("demo")
def test_a_second_start_changes_nothing() -> None:
    before = rows()
    create_demo_data()
    create_superuser()
    assert rows() == before


def test_the_password_is_shown_again_until_it_is_changed(demo: str) -> None:
    assert create_superuser() == demo
    admin = get_user_model().objects.get(username="admin")
    admin.set_password("another")
    admin.save()
    assert create_superuser() is None


@pytest.mark.parametrize(
    ("public", "address", "status"), [(True, "127.0.0.1", 302), (True, "192.0.2.7", 403), (False, "127.0.0.1", 403)]
)
@pytest.mark.usefixtures("demo")
def test_a_visitor_on_this_machine_logs_in_with_a_button(
    settings: Any, client: Client, *, public: bool, address: str, status: int
) -> None:
    settings.LOCKSTEP_LAB_PUBLIC, settings.ROOT_URLCONF = public, __name__
    assert ("Log in as admin" in client.get("/").content.decode()) is True
    assert client.post("/login/", REMOTE_ADDR=address).status_code == status
    assert client.get("/login/").status_code == 405
    assert client.get("/admin/").status_code == (200 if status == 302 else 302)
    assert ("Log in as admin" in client.get("/").content.decode()) is (status != 302)
    assert Client(enforce_csrf_checks=True).post("/login/", REMOTE_ADDR="127.0.0.1").status_code == 403


def test_without_the_demo_there_is_no_such_address(client: Client) -> None:
    assert client.post("/login/").status_code == 404


@pytest.mark.usefixtures("demo")
def test_a_button_makes_a_session_wait(settings: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = __name__
    cut_short = threading.Event()
    monkeypatch.setattr(waits, "SECONDS", None)
    monkeypatch.setattr(waits, "_cut_short", cut_short)
    page = reverse("admin:lockstep_monitor_lock_changelist")
    assert client.post("/waits/").status_code == 403
    assert client.login(username="admin", password=create_superuser())
    assert "Let one session wait" in client.get(page).content.decode()
    for _ in range(2):  # the second one starts none
        assert client.post("/waits/").headers["Location"] == page
    until(lambda: "1 session waits" in client.get(page).content.decode(), "a session to wait")
    cut_short.set()
    until(lambda: "no session waits" in client.get(page).content.decode(), "both sessions to end")
    until(all_others_are_idle, "their connections to close")


def test_a_port_that_is_in_use_is_named_with_its_option(settings: Any) -> None:
    settings.LOCKSTEP_LAB_PUBLIC = True
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=rf"^Cannot listen on 127\.0\.0\.1:{port}: .* Choose another --port$"):
            call_command("demo", port=port)


@pytest.mark.usefixtures("demo")
def test_the_others_cannot_log_in() -> None:
    assert not any(user.has_usable_password() for user in get_user_model().objects.exclude(username="admin"))


def test_it_does_not_start_where_the_environment_is_another() -> None:
    with pytest.raises(CommandError, match="needs LOCKSTEP_LAB_PUBLIC"):
        call_command("demo")


def answer(port: int, page: str, *, host: str = "localhost") -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", page, headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.fixture
def started(pgdata: Path) -> Iterator[subprocess.Popen[str]]:
    env = environment(BANK_PGDATA=str(pgdata))
    command = [sys.executable, "manage.py", "demo", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as server:
        yield server
        server.send_signal(signal.SIGINT)
        server.wait(30)


def test_the_command_serves_the_front_page_to_everyone(started: subprocess.Popen[str]) -> None:
    assert started.stdout
    password, address = started.stdout.readline(), started.stdout.readline()
    assert re.search(r"the password \w{16},", password)
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", address)
    for page in ("/", "/lab/", "/static/bank/icon.svg"):
        assert answer(int(port), page)[0] == 200
    assert "PGDATA" not in answer(int(port), "/", host="evil.example")[1]


@pytest.fixture
def in_container(pgdata: Path) -> Iterator[int]:
    """The port of the server that the Dockerfile starts, with the environment that it sets."""
    text = (ROOT / "Dockerfile").read_text()
    settings = dict(re.findall(r"([A-Z_]+)=(\w+)", "BANK" + text.partition("\nENV BANK")[2].partition("\n")[0]))
    env = environment(BANK_PGDATA=str(pgdata), SECRET_OF_OURS="do-not-show", **settings)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0", "--skip-checks"], cwd=ROOT, env=env, check=True)
    (options,) = re.findall(r"manage.py (runserver .*) 0\.0\.0\.0:8000", text)
    port = free_port()
    command = [sys.executable, "manage.py", *options.split(), "--noreload", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=ROOT, env=env) as server:
        until(lambda: listens_on(port), "the server", patience=3 * PATIENCE)
        yield port
        server.send_signal(signal.SIGINT)
        server.wait(30)


def test_the_container_serves_pages_over_http_and_shows_no_environment(in_container: int) -> None:
    assert answer(in_container, "/static/bank/icon.svg")[0] == 200
    assert answer(in_container, "/lab/")[0] == 302  # to the login
    assert answer(in_container, "/")[0] == 200
    status, page = answer(in_container, "/", host="evil.example")
    assert (status, "SECRET_OF_OURS" in page) == (400, False)
