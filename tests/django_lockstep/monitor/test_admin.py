"""Who waits for whom, in the admin."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import Account

PAGE = "/admin/lockstep_monitor/lock/"


@pytest.mark.django_db(transaction=True)
def test_a_wait_is_shown_with_model_and_key(admin_client: Client, account: Account, open_session: Any) -> None:
    holder, waiter = open_session(), open_session()
    with holder.holding(Account.deposit, account.pk, 1):
        late = waiter.start(Account.deposit, account.pk, 1)
        waiter.wait_until_blocked()
        page = admin_client.get(PAGE).content.decode()
        drawing = admin_client.get(f"{PAGE}waits.svg")
    late.result(20)
    assert "1 session waits" in page
    assert f"accounts.Account pk={account.pk}" in page
    assert f'href="{PAGE}waits.svg"' in page
    assert (drawing["Content-Type"], drawing["Content-Disposition"]) == (
        "image/svg+xml; charset=utf-8",
        'attachment; filename="waits.svg"',
    )
    root = ET.fromstring(drawing.content)  # noqa: S314 - our own
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 2
    assert ".waits .line" in (root.findtext("{http://www.w3.org/2000/svg}style") or "")


def test_it_looks_again_unless_it_is_stopped(admin_client: Client) -> None:
    assert b'http-equiv="refresh"' in admin_client.get(PAGE).content
    assert b'http-equiv="refresh"' not in admin_client.get(f"{PAGE}?paused=1").content


def test_the_admins_index_leads_to_it(admin_client: Client) -> None:
    assert f'href="{PAGE}"'.encode() in admin_client.get("/admin/").content


@pytest.mark.parametrize(("codename", "status"), [("view_lock", 200), ("view_account", 403)])
def test_it_is_for_whoever_may(client: Client, django_user_model: Any, codename: str, status: int) -> None:
    clerk = django_user_model.objects.create(username="clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename=codename))
    client.force_login(clerk)
    assert [client.get(url).status_code for url in (PAGE, f"{PAGE}waits.svg")] == [status, status]


@pytest.mark.parametrize("name", ["add/", "1/change/", "1/delete/"])
def test_there_is_nothing_to_change(admin_client: Client, name: str) -> None:
    assert admin_client.post(PAGE + name, {"post": "yes"}).status_code == 404
