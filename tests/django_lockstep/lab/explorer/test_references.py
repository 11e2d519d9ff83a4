"""Ends that differ only in the keys that new rows got are the same end; ends in which other rows refer are not."""

from typing import Any

import pytest
from django.db import transaction

from django_lockstep.lab.explorer import Scenario, explore
from tests.testapps.press.models import Article, Author, Comment, Country

pytestmark = pytest.mark.django_db(transaction=True)


def publishes(name: str) -> Any:
    """Write three rows, each of which refers to the one before."""

    def publish(fixture: Any) -> None:
        author = Author.objects.create(name=name)
        article = Article.objects.create(title=name, author=author)
        Comment.objects.create(article=article)

    return publish


def test_who_was_first_in_which_table_does_not_matter() -> None:
    found = explore(
        Scenario(set_up=lambda: None, actors={"ada": publishes("Ada"), "bob": publishes("Bob")}), directed=True
    )

    assert found.verdict == "nothing found", found.reason
    assert len(found.outcomes) == 1


def test_a_row_that_refers_to_the_other_ones_row_does() -> None:
    def answers_the_newest(fixture: Any) -> None:
        Article.objects.create(author_id=fixture)
        newest = Article.objects.latest("pk")
        Comment.objects.create(article=newest)

    found = explore(
        Scenario(
            set_up=lambda: Author.objects.create().pk, actors={"ada": answers_the_newest, "bob": answers_the_newest}
        ),
        directed=True,
    )

    wrong = [difference for outcome in found.outcomes for difference in outcome.differences]
    assert found.verdict == "broken"
    assert any("article_id bob#1 instead of ada#1" in difference for difference in wrong), wrong


def test_rows_that_were_rolled_back_are_not_counted() -> None:
    def second_one_tries_twice(fixture: Any) -> None:
        if Country.objects.exists():
            with transaction.atomic():
                Author.objects.create()
                transaction.set_rollback(True)
        Country.objects.create()
        Article.objects.create(author=Author.objects.create())

    found = explore(Scenario(set_up=lambda: None, actors=[second_one_tries_twice] * 2), directed=True)

    assert found.verdict == "nothing found", found.reason


def test_rows_of_the_set_up_keep_their_keys() -> None:
    keys: list[int] = []

    def author() -> int:
        keys.append(Author.objects.create().pk)
        return keys[-1]

    found = explore(Scenario(set_up=author, actors=[lambda pk: Article.objects.create(author_id=pk)]))

    (outcome,) = found.outcomes
    end: Any = outcome.state
    assert [article["author_id"] for article in end["press_article"]] == keys[-1:]


def test_nor_does_it_in_a_table_of_which_only_written_rows_are_put_back() -> None:
    Author.objects.bulk_create(Author() for _ in range(30))

    found = explore(Scenario(set_up=lambda: None, actors=[publishes("Ada"), publishes("Bob")]), directed=True)

    assert found.verdict == "nothing found", found.reason
