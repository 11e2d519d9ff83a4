"""The front page, without a browser."""

import inspect
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.test import Client

from accounts.models import Account
from bank.front import code_of
from bank.policy import POLICY
from django_lockstep.lab.pages import process
from django_lockstep.lab.pages.process import RunRefused
from tests.support.sessions import PATIENCE, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> None:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path


@pytest.fixture
def public(settings: Any) -> None:
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = settings.LOCKSTEP_LAB_PUBLIC = True


def code_lines(method: Any) -> list[str]:
    return [line.strip() for line in code_of(method).splitlines()]


@pytest.mark.parametrize("method", [Account.withdraw, Account.try_withdraw])
def test_the_code_is_that_of_the_models(method: Any) -> None:
    shown = code_lines(method)
    written = [line.strip() for line in inspect.getsource(inspect.unwrap(method)).splitlines()]
    assert written[-len(shown) :] == shown
    assert 10 <= len(shown) <= 15
    assert '"""' not in "".join(shown)


def test_everyone_sees_both_and_starts_nothing(client: Client) -> None:
    with patch.object(process, "_start_python") as run:
        page = client.get("/")
        refused = client.post("/")
    text = page.content.decode()
    assert "select_for_update" in text
    assert "filter(version=seen).update" in text
    assert "<form" not in text
    assert (page.status_code, refused.status_code, run.called) == (200, 403, False)


@pytest.mark.usefixtures("public")
def test_both_are_raced_for_everyone_in_a_public_lab(client: Client) -> None:
    assert client.post("/")["Location"] == "/"
    until(lambda: "Running now" not in client.get("/").content.decode(), "the races to end", patience=4 * PATIENCE)
    text = client.get("/").content.decode()
    assert text.count("Balance: 50.00") == 2
    assert text.count('<span class="verdict holds" lang="en">holds</span>') == 2
    assert text.count("<svg") == 2
    assert "waits for A on accounts_account" in text
    ids = [part.partition('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


@pytest.mark.usefixtures("public")
def test_a_post_needs_its_token() -> None:
    assert Client(enforce_csrf_checks=True).post("/").status_code == 403


def test_staff_may_where_races_run_in_pages(client: Client, settings: Any) -> None:
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = True
    client.force_login(User.objects.create_user("ada"))
    assert client.post("/").status_code == 403
    client.force_login(User.objects.create_user("grace", is_staff=True))
    assert "Race them" in client.get("/").content.decode()


@pytest.mark.usefixtures("public")
def test_a_second_page_is_told_that_one_is_running(client: Client) -> None:
    with patch("bank.front.start_races", side_effect=RunRefused.busy()):
        answer = client.post("/")
    assert (answer.status_code, "Another page is running a race" in answer.content.decode()) == (409, True)


@pytest.mark.parametrize("page", ["/", "/lab/", "/overdrafts/"])
def test_pages_forbid_inline_scripts(admin_client: Client, page: str) -> None:
    assert admin_client.get(page)["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY


def test_the_documentation_of_the_api_keeps_its_scripts(admin_client: Client) -> None:
    assert "Content-Security-Policy" not in admin_client.get("/editing/api/docs").headers
