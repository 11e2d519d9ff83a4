"""``manage.py demo``: a start that can be repeated, with something in every room."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core import serializers
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from accounts.models import Account
from bank.demo_data import create_demo_data, create_superuser
from bank.models import Article
from django_lockstep.editing import status_of
from django_lockstep.leases.models import Lease
from tests.bank.processes import ROOT, environment


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
    assert create_superuser() is None
    assert rows() == before


def test_the_superuser_sees_who_edits_an_article(demo: str, client: Client) -> None:
    assert client.login(username="admin", password=demo)
    for name in ("article_changelist", "author_changelist"):
        assert "grace" in client.get(reverse(f"admin:bank_{name}")).content.decode()
    first = Article.objects.order_by("pk").first()
    assert first
    page = client.get(reverse("admin:bank_article_change", args=[first.pk])).content.decode()
    assert "<strong>grace</strong> has been editing since" in page


@pytest.mark.usefixtures("demo")
def test_the_others_cannot_log_in() -> None:
    assert not any(user.has_usable_password() for user in get_user_model().objects.exclude(username="admin"))


def test_it_does_not_start_where_the_environment_is_another() -> None:
    with pytest.raises(CommandError, match="needs DEBUG and LOCKSTEP_LAB_PUBLIC"):
        call_command("demo")


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
    assert re.search(r"the password \w{16} ", password)
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", address)
    for page in ("/", "/lab/"):
        with closing(HTTPConnection("127.0.0.1", int(port), timeout=30)) as connection:
            connection.request("GET", page)
            assert connection.getresponse().status == 200
