"""From each page of the demo a person finds the others."""

import re

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.test import Client

from tests.support.sessions import PATIENCE

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


def test_an_asgi_server_gets_the_same_pages() -> None:
    from bank.asgi import application

    async def ask() -> tuple[int, dict[bytes, bytes]]:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/favicon.ico",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        server = ApplicationCommunicator(application, scope)
        await server.send_input({"type": "http.request", "body": b""})
        start = await server.receive_output(PATIENCE)
        await server.receive_output(PATIENCE)
        await server.wait(PATIENCE)
        return start["status"], dict(start["headers"])

    status, headers = async_to_sync(ask)()
    assert (status, headers[b"Location"]) == (302, b"/static/bank/icon.svg")
