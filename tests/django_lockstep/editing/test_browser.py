"""The admin in a real browser: several people, one record."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_lockstep.editing import announce, check_out, status_of, take_over
from tests.django_lockstep.editing.people import Person, article, change, held
from tests.support.browser import chromium, logged_in, serious_faults
from tests.support.sessions import until
from tests.testapps.press.models import Article, Review

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.django_lockstep.editing.urls")]

Enter = Callable[..., Page]
__all__ = ["article", "chromium", "logged_in"]


def user(name: str, *permissions: str) -> Any:
    return Person(name, *permissions).user


def test_two_people_and_one_who_takes_over(logged_in: Enter, article: Article) -> None:
    ada, chief = logged_in(user("ada")), logged_in(user("chief", "take_over_editlock"))
    ada.goto(change(article))
    expect(ada.locator("#edit-lock")).to_contain_text("Checked out by you until")
    ada.get_by_label("Title").fill("What Ada typed")

    chief.goto(change(article))
    expect(chief.locator("#edit-lock")).to_contain_text("ada has been editing since")
    expect(chief.get_by_role("button", name="Save", exact=True)).to_have_count(0)
    assert serious_faults(chief) == []
    chief.get_by_role("button", name="Take over").click()
    expect(chief.locator("#edit-lock")).to_contain_text("Checked out by you until")

    ada.get_by_role("button", name="Save", exact=True).click()
    expect(ada.locator(".errornote, .errorlist").first).to_be_visible()
    expect(ada.locator(".errorlist").first).to_contain_text("was taken over by chief")
    expect(ada.get_by_label("Title")).to_have_value("What Ada typed")
    assert Article.objects.get().title == "Old"

    chief.get_by_label("Title").fill("What the chief typed")
    chief.get_by_role("button", name="Save", exact=True).click()
    expect(chief.locator(".success")).to_be_visible()
    assert Article.objects.get().title == "What the chief typed"
    assert held() == set()


def test_leaving_the_page_gives_it_back(logged_in: Enter, article: Article) -> None:
    ada = logged_in(user("ada"))
    ada.goto(change(article))
    assert held()
    ada.goto("/admin/")
    until(lambda: held() == set(), "the page to give it back")


def test_loading_the_page_again_goes_on(logged_in: Enter, article: Article) -> None:
    ada = logged_in(user("ada"))
    ada.goto(change(article))
    ada.evaluate("navigator.sendBeacon = () => true")  # as if the server had not heard of the leaving
    ada.reload()
    expect(ada.locator("#edit-lock")).to_contain_text("Checked out by you until")
    assert status_of(article).holder == "ada"


def test_the_page_extends_while_the_person_is_active_and_only_then(logged_in: Enter, article: Article) -> None:
    ada = logged_in(user("ada"))
    ada.clock.install()
    ada.goto(change(article))
    sent: list[str] = []
    ada.on("request", lambda request: sent.append(request.url) if request.url.endswith("/edit-lock/") else None)
    ada.get_by_label("Title").press("a")
    with ada.expect_response(lambda response: response.url.endswith("/edit-lock/")) as extended:
        ada.clock.run_for(61_000)
    assert extended.value.ok
    ada.clock.fast_forward(6 * 60_000)  # longer than LOCKSTEP_EDIT_IDLE
    sent.clear()
    ada.clock.run_for(60_000)
    assert sent == []
    ada.clock.fast_forward(40 * 60_000)
    ada.clock.run_for(61_000)
    expect(ada.locator("#edit-lock")).to_contain_text("You were inactive")
    assert sent == []


def test_the_page_tells_who_took_it_over(logged_in: Enter, article: Article) -> None:
    ada = logged_in(user("ada"))
    ada.clock.install()
    ada.goto(change(article))
    take_over(article, user("chief", "take_over_editlock"))
    ada.get_by_label("Title").press("a")
    ada.clock.run_for(61_000)
    expect(ada.locator("#edit-lock")).to_contain_text("was taken over by chief")


def test_presence_follows_who_comes(logged_in: Enter, article: Article) -> None:
    review = Review.objects.create(author=article.author)
    ada = logged_in(user("ada"))
    ada.clock.install()
    ada.goto(f"/admin/press/review/{review.pk}/change/")
    expect(ada.locator("#edit-lock")).to_contain_text("No other users are editing.")
    announce(review, user("bob"))
    ada.get_by_label("Text").press("a")
    ada.clock.run_for(61_000)
    expect(ada.locator("#edit-lock")).to_contain_text("Also editing: bob.")


def test_the_status_page_is_live(logged_in: Enter, article: Article) -> None:
    root = logged_in(user("root", "view_editlock"))
    root.goto("/editing/")
    expect(root.get_by_text("Nothing is checked out.")).to_be_visible()
    check_out(article, user("ada"))
    expect(root.get_by_text(f"press.article:{article.pk}")).to_be_visible()
    assert serious_faults(root) == []
