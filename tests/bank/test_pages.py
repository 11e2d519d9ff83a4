"""From each page of the demo a person finds the others."""

import re

import pytest
from django.test import Client

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
