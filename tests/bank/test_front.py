"""The front page, without a browser."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.html import strip_tags

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


def test_everyone_sees_the_three_and_starts_nothing(client: Client) -> None:
    with patch.object(process, "_start_python") as run:
        page = client.get("/")
        refused = client.post("/")
    text = unescape(strip_tags(page.content.decode()))
    for idiom in (
        "def withdraw(",
        "select_for_update(no_key=True",
        "def try_withdraw(",
        ".filter(version=self.version)",
    ):
        assert idiom in text
    assert ".update(**written)" in text
    assert "<form" not in page.content.decode()
    assert (page.status_code, refused.status_code, run.called) == (200, 403, False)


@pytest.mark.usefixtures("public")
def test_they_are_raced_for_everyone_in_a_public_lab(client: Client) -> None:
    assert client.post("/")["Location"] == "/"
    until(lambda: "lanes-now" not in client.get("/").content.decode(), "the races to end", patience=4 * PATIENCE)
    text = client.get("/").content.decode()
    endings = [
        " ".join(unescape(strip_tags(part.partition("</p>")[0])).split())
        for part in text.split('<p class="ending ')[1:]
    ]
    assert [ending.partition(">")[2].strip() for ending in endings] == [
        "70.00 Bob's 20 lost, in 2 of 6 orders",
        "80.00 Ada's 30 lost, in 2 of 6 orders",
        "50.00 in 2 of 6 orders",
        "50.00 in all 4 orders",
        "50.00 in all 6 orders, after 1 retry in 4 of them",
    ]
    assert text.count("<svg") - text.count('<svg viewBox="0 0 60 40"') == 9  # one that meets, two serial ones, of each
    assert "waits for Ada on accounts_account" in text
    step = text.partition("Step 4 of 6: Bob")[2].partition("</li>")[0]
    assert [part.partition("</dd>")[0] for part in step.split("<dd>")[1:]] == ["70.00", "waits", "100.00"]
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
    with patch("bank.front.start_races", side_effect=RunRefused(process._BUSY, status=409)):
        answer = client.post("/")
    assert (answer.status_code, "Another page is running a race" in answer.content.decode()) == (409, True)


@pytest.mark.parametrize("page", ["/", "/lab/", "/overdrafts/"])
def test_pages_forbid_inline_scripts(admin_client: Client, page: str) -> None:
    assert admin_client.get(page)["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY


def test_the_documentation_of_the_api_keeps_its_scripts(admin_client: Client) -> None:
    assert "Content-Security-Policy" not in admin_client.get("/editing/api/docs").headers


# From each page of the demo a person finds the others


PAGES = ("/", "/admin/", "/lab/", "/editing/", "/editing/api/docs", "/overdrafts/")


@pytest.mark.parametrize("page", ["/", "/admin/", "/lab/", "/editing/", "/overdrafts/"])
def test_every_page_leads_to_every_other(admin_client: Client, page: str) -> None:
    html = admin_client.get(page).content.decode()
    links = re.findall(r'<a href="([^"]+)"', html)
    assert set(PAGES) <= set(links)
    for link in PAGES:
        assert admin_client.get(link).status_code == 200, link


def test_the_login_says_what_this_is(client: Client) -> None:
    page = client.get("/admin/", follow=True)
    assert "Bank, the demo of django-lockstep" in page.content.decode()


def test_browsers_find_an_icon(client: Client) -> None:
    assert client.get("/favicon.ico").headers["Location"] == "/static/bank/icon.svg"
