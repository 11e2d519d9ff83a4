"""Each block of Python in the documentation does what its page says of it, or at least runs.

Those that are files of a project are run by the tests of the tutorial and of the README, in projects of their own.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.db import transaction
from django.test.utils import isolate_apps
from pytest_django import Settings

from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.locking import lock_row
from tests.support.factories import AccountFactory, UserFactory
from tests.support.pages import ROOT
from tests.testapps.press.models import Article, Author
from tests.testapps.shop.models import Numbering, Order, Seat

_BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SEATS = '[{"model": "shop.seat", "pk": 1, "fields": {"guest": "Eve", "version": 3}}]'
IMPORTED = """
import functools
import json
import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.core.mail import send_mail
from django.core.management import call_command
from django.db import connection, connections, migrations, models, transaction
from django.db.models import F
from django.http import JsonResponse
from django.test import TransactionTestCase
from django.urls import include, path
from accounts.models import Account
from accounts.operations import AppendOnly
from django_lockstep.editing import *
from django_lockstep.locking import *
from tests.testapps.press.models import Article, Author, Report
from tests.testapps.shop.models import Numbering, Order, Seat
"""
_IS_FILE = re.compile(r"# \S+\.py\n")


def blocks() -> Iterator[Any]:
    """Yield the blocks that are not files, by their page and number."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        texts = [dedent(text) for _, text in _BLOCK.findall(page.read_text("utf-8"))]
        for number, text in enumerate(text for text in texts if not _IS_FILE.match(text)):
            name = f"{page.relative_to(ROOT).with_suffix('')}-{number}"
            yield pytest.param(page, text, id=name, marks=[pytest.mark.slow] if _is_about_dynamodb(page) else [])


def _is_about_dynamodb(page: Path) -> bool:
    return page.stem.startswith("dynamodb")


def rows() -> dict[str, Any]:
    """Return the rows that the blocks take for granted."""
    user = UserFactory.create(is_superuser=True)
    article = Article.objects.create(author=Author.objects.create())
    fees, ada, shop = AccountFactory.create_batch(3, balance=1000)
    first, second = Seat.objects.create(guest="Ada"), Seat.objects.create(guest="Bob")
    Numbering.objects.create(name="invoices")
    return {
        "user": user,
        "request": SimpleNamespace(user=user),
        "token": None,
        "article": article,
        "pks": [article.pk],
        "fees": fees.pk,
        "ada": ada.pk,
        "shop": shop.pk,
        "account": ada,
        "pk": first.pk,
        "my_pk": first.pk,
        "other_pk": second.pk,
        "collect": lambda: "42",
        "SeatSerializer": object,
    }


def names() -> dict[str, Any]:
    """Return what the pages have imported before, and settings to add to."""
    settings: dict[str, Any] = {"DATABASES": {"default": {}}, "INSTALLED_APPS": []}
    module = {"__name__": "tests.testapps.shop.pasted", "__package__": "tests.testapps.shop", **settings}
    exec(IMPORTED, module)  # noqa: S102 - our own
    return module


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("page", "text"), list(blocks()))
def test_it_runs(
    page: Path,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    (tmp_path / "seats.json").write_text(SEATS)
    settings.FIXTURE_DIRS = [tmp_path]
    for module in (admin, admin.sites):
        monkeypatch.setattr(module, "site", admin.AdminSite())
    if _is_about_dynamodb(page):
        request.getfixturevalue("dynamodb")
        settings.LOCKSTEP_STORES = {"dynamodb": settings.LOCKSTEP_STORES["tested"]}
    else:
        # The contract of leases is the same, and no other server is needed.
        settings.LOCKSTEP_STORES = {"dynamodb": {"BACKEND": "postgresql"}}
    if text.startswith('"OPTIONS"'):  # an entry of a dictionary
        text = f"DATABASES = {{{text}}}"
    with isolate_apps("tests.testapps.shop"):
        exec(compile(text, str(page), "exec"), {**names(), **rows()})  # noqa: S102 - the documentation is ours


def make_seat() -> int:
    return Seat.objects.create().pk


def book(pk: int) -> None:
    if not Order.objects.filter(seat=pk).exists():
        Order.objects.create(seat_id=pk, dish="soup")


def book_after_locking(pk: int) -> None:
    with transaction.atomic():
        lock_row(Seat, pk)
        book(pk)


@pytest.mark.django_db(transaction=True)
def test_the_fixture_proves_the_race_that_the_barrier_beside_it_may_miss(race: RaceFixture) -> None:
    (text,) = (text for _, text in (param.values for param in blocks()) if "Barrier(2)" in text)
    page: dict[str, Any] = {**names(), "make_seat": make_seat, "book": book_after_locking}
    exec(text, page)  # noqa: S102 - the documentation is ours

    page["test_with_a_barrier"]()
    page["test_with_the_lab"](race)
    page["book"] = book
    with pytest.raises(pytest.fail.Exception, match="2 of"):
        page["test_with_the_lab"](race)
