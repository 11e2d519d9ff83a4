"""Who waits for whom, in the admin."""

import re
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.db import OperationalError, connection
from django.test import Client

from accounts.models import Account
from django_lockstep.monitor import Session, admin, lock_report
from django_lockstep.monitor.admin import end_session
from tests.django_lockstep.monitor.lock_situations import LockSituation, lock, role
from tests.support.factories import client_of_staff

PAGE = "/admin/lockstep_monitor/lock/"


@pytest.mark.django_db(transaction=True)
def test_a_wait_is_shown_with_model_and_key(admin_client: Client, account: Account, open_session: Any) -> None:
    holder, waiter = open_session(), open_session()
    with holder.holding(Account.deposit, account.pk, 1):
        late = waiter.start(Account.deposit, account.pk, 1)
        waiter.wait_until_blocked()
        page = admin_client.get(PAGE).content.decode()
    late.result(20)
    assert "1 session waits" in page
    assert f"accounts.Account pk={account.pk}" in page
    drawing, end, _ = page[page.index('<svg class="waits"') :].partition("</svg>")
    root = ET.fromstring(drawing + end)  # noqa: S314 - our own
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 2


def test_it_looks_again_unless_it_is_stopped(admin_client: Client) -> None:
    assert b'http-equiv="refresh"' in admin_client.get(PAGE).content
    assert b'http-equiv="refresh"' not in admin_client.get(f"{PAGE}?paused=1").content


def test_the_admins_index_leads_to_it(admin_client: Client) -> None:
    assert f'href="{PAGE}"'.encode() in admin_client.get("/admin/").content


@pytest.mark.parametrize(("codename", "status"), [("view_lock", 200), ("view_account", 403)])
def test_it_is_for_whoever_may(db: None, codename: str, status: int) -> None:
    assert client_of_staff(codename).get(PAGE).status_code == status


@pytest.mark.parametrize("name", ["add/", "1/change/", "1/delete/"])
def test_there_is_nothing_to_change(admin_client: Client, name: str) -> None:
    assert admin_client.post(PAGE + name, {"post": "yes"}).status_code == 404


# Sessions are ended by who may: in the admin, after a question, and never another one than the one asked about


@pytest.fixture
def waiter(group: Group, situation: LockSituation) -> "Future[Any]":
    """A session ``b`` that waits for ``a``."""
    situation.hold("a", lock, Group, group.pk)
    return situation.wait("b", lock, Group, group.pk)


def session_of(name: str) -> Session:
    (session,) = (candidate for candidate in lock_report().sessions.values() if candidate.application == name)
    return session


def end(client: Client, session: Session, way: str, started: str | None = None) -> list[str]:
    """Answer the question with yes, and return what the page says then."""
    path = f"{PAGE}{session.pid}/{way}/"
    assert session.started is not None
    response = client.post(path, {"started": started or session.started.isoformat()})
    assert (response.status_code, response["Location"]) == (302, PAGE)
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_a_statement_is_cancelled(admin_client: Client, waiter: "Future[Any]") -> None:
    assert end(admin_client, session_of("b"), "cancel") == ["The server was asked to end it."]
    with pytest.raises(OperationalError, match="canceling statement due to user request"):
        waiter.result(20)


def test_a_session_that_holds_a_lock_is_terminated(admin_client: Client, waiter: "Future[Any]") -> None:
    page = admin_client.get(PAGE).content.decode()
    holder = session_of("a")
    # It runs no statement that could be cancelled.
    assert (f"{PAGE}{holder.pid}/cancel/" in page, f"{PAGE}{holder.pid}/terminate/" in page) == (False, True)
    assert b"Terminate this session?" in admin_client.get(f"{PAGE}{holder.pid}/terminate/").content
    end(admin_client, holder, "terminate")
    waiter.result(20)


def test_asking_ends_nothing(admin_client: Client, waiter: "Future[Any]") -> None:
    for name in "ab":
        question = admin_client.get(f"{PAGE}{session_of(name).pid}/terminate/").content.decode()
        assert "select" in question.lower()
    assert not waiter.done()


@pytest.mark.parametrize(
    "started", ["", "yesterday", "2026-02-30T00:00:00Z", "2026-13-01 00:00", "9999-12-31T23:59:59-23:59"]
)
def test_what_is_no_time_of_a_session_is_a_bad_request(admin_client: Client, started: str) -> None:
    response = admin_client.post(f"{PAGE}1/terminate/", {"started": started})
    assert (response.status_code, b"started must be the time" in response.content) == (400, True)


def test_another_session_with_its_pid_is_left_alone(admin_client: Client, waiter: "Future[Any]") -> None:
    holder = session_of("a")
    path = f"{PAGE}{holder.pid}/terminate/"
    response = admin_client.post(path, {"started": datetime(2020, 1, 1, tzinfo=UTC).isoformat()})
    (said,) = get_messages(response.wsgi_request)
    assert "has ended in the meantime" in str(said)
    assert session_of("a").pid == holder.pid


def test_a_session_that_is_gone_is_said_to_be(admin_client: Client) -> None:
    response = admin_client.get(f"{PAGE}1/cancel/", follow=True)
    assert b"Session 1 has ended in the meantime" in response.content


def test_ones_own_session_is_not_ended(transactional_db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        pid, started = cursor.fetchone()
    assert not end_session(pid, started, ending="terminate", using="default")


def test_what_is_refused_is_said(admin_client: Client, waiter: "Future[Any]", monkeypatch: pytest.MonkeyPatch) -> None:
    def as_another_role(*args: Any, **options: Any) -> bool:
        with role("pg_monitor"):
            return end_session(*args, **options)

    monkeypatch.setattr(admin, "end_session", as_another_role)
    said = end(admin_client, session_of("a"), "terminate")
    assert re.match("The server refuses: (permission denied|must be a superuser) to terminate", said[0])
    assert not waiter.done()


@pytest.mark.parametrize("codename", ["view_lock", "end_session"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_it_takes_both_permissions(waiter: "Future[Any]", codename: str, method: str) -> None:
    client = client_of_staff(codename)
    path = f"{PAGE}{session_of('a').pid}/terminate/"
    assert getattr(client, method)(path).status_code == 403
    assert path.encode() not in client.get(PAGE).content
    assert not waiter.done()
