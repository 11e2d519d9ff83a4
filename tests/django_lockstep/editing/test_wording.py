"""What people are told: in their language, and in the time that their pages show."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone, translation

from django_lockstep.editing import EditingError, check_in, check_out, extend, status_of, take_over, writing
from django_lockstep.editing.clock import time_with_day
from django_lockstep.editing.models import CheckOut
from django_lockstep.errors import ConcurrencyError
from tests.django_lockstep.editing.people import Person, article, expire
from tests.testapps.press.models import Article

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]

__all__ = ["article"]

TOKYO = ZoneInfo("Asia/Tokyo")


def in_tokyo(moment: datetime | None) -> str:
    """Return how it is told there, also shortly before midnight."""
    assert moment is not None
    with timezone.override(TOKYO):
        return time_with_day(moment)


def told(call: Any, *args: Any, **kwargs: Any) -> str:
    """Return the message of the error that the call ends with."""
    with pytest.raises((ConcurrencyError, EditingError)) as caught:
        call(*args, **kwargs)
    return str(caught.value.args[0])


# Times.


def test_a_refusal_tells_the_time_in_the_current_zone(ada: Any, article: Article) -> None:
    result = check_out(article, ada)
    with timezone.override(TOKYO):
        text = told(article.save)
    assert f"by ada since {in_tokyo(result.since)} until {in_tokyo(result.expires_at)}" in text


def test_so_does_what_is_told_of_a_check_out_that_has_ended(ada: Any, article: Article) -> None:
    result = check_out(article, ada)
    check_in(article, ada)
    with timezone.override(TOKYO):
        text = told(extend, article, ada, token=result.token)
    assert text.endswith(f"was checked in at {in_tokyo(CheckOut.objects.get().ended_at)}")


def test_so_does_the_list(article: Article) -> None:
    ada, bob = Person("ada"), Person("bob")
    ada.opens(article)
    with timezone.override(TOKYO):
        text = bob.client.get("/admin/press/article/").content.decode()
    assert f'title="since {in_tokyo(status_of(article).since)}, because of press.article:{article.pk}"' in text


def test_a_time_without_a_zone_is_told_as_it_is() -> None:
    moment = datetime(2026, 11, 21, 9, 30, 5)  # noqa: DTZ001 - of a project without time zones
    with timezone.override(TOKYO):
        assert time_with_day(moment) == "11/21/2026 9:30 a.m."


def test_a_time_of_another_zone_is_told_in_the_current_one() -> None:
    with timezone.override(TOKYO):
        assert time_with_day(datetime(2026, 2, 28, 15, 30, tzinfo=UTC)) == "03/01/2026 12:30 a.m."


# Languages.


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A language in which every sentence stands between angles."""
    monkeypatch.setattr(translation._trans, "gettext", lambda text: f"«{text}»")  # type: ignore[attr-defined]


@pytest.mark.usefixtures("translated")
def test_refusals_are_translated(ada: Any, bob: Any, article: Article) -> None:
    token = check_out(article, ada).token or ""
    with writing(ada, token="wrong"):
        sentences = [told(article.save), told(article.author.save)]
    with writing(bob):
        sentences += [told(article.save), told(article.author.save)]
    sentences += [
        told(take_over, article, bob),
        told(check_in, article, bob),
        told(check_in, article, bob, token=token),
        told(check_in, article, ada, token="wrong"),
    ]
    assert [text for text in sentences if (text[0], text[-1]) != ("«", "»")] == []


@pytest.mark.usefixtures("translated")
@pytest.mark.parametrize("end", ["checked in", "taken over", "expired"])
def test_the_end_of_a_check_out_is_translated(ada: Any, chief: Any, article: Article, end: str) -> None:
    result = check_out(article, ada)
    {
        "checked in": lambda: check_in(article, ada),
        "taken over": lambda: take_over(article, chief),
        "expired": lambda: expire(result),
    }[end]()
    text = told(extend, article, ada, token=result.token)
    assert (text[0], text[-1]) == ("«", "»")


@pytest.mark.usefixtures("translated")
def test_the_change_page_is_translated(article: Article) -> None:
    ada = Person("ada")
    page = ada.opens(article)
    expire(page.context["edit_lock"]["result"])
    refused = ada.saves(page, article)
    assert "«Not saved: «The check-out of" in refused.content.decode()
    shown = ada.saves(refused, article, _take_over="1")
    assert "«You have taken over this record." in shown.content.decode()
