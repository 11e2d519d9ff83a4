"""Ends that differ only in the keys that new rows got are the same end; ends in which other rows refer are not."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, transaction

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.tables.final_state import label_text
from tests.support.sessions import query
from tests.testapps.press.models import Article, Author, Comment, Country
from tests.testapps.shop.models import Seat, Turnstile

pytestmark = pytest.mark.django_db(transaction=True)


def publishes(name: str) -> Any:
    """Write three rows, each of which refers to the one before."""

    def publish(fixture: Any) -> None:
        author = Author.objects.create(name=name)
        article = Article.objects.create(title=name, author=author)
        Comment.objects.create(article=article)

    return publish


def test_who_was_first_in_which_table_does_not_matter() -> None:
    result = explore(
        Scenario(set_up=lambda: None, actors={"ada": publishes("Ada"), "bob": publishes("Bob")}), directed=True
    )

    assert result.verdict == "nothing found", result.reason
    assert len(result.outcomes) == 1


def test_a_row_that_refers_to_the_other_ones_row_does() -> None:
    def answers_the_newest(fixture: Any) -> None:
        Article.objects.create(author_id=fixture)
        newest = Article.objects.latest("pk")
        Comment.objects.create(article=newest)

    actors = {"ada": answers_the_newest, "bob": answers_the_newest}
    result = explore(Scenario(set_up=lambda: Author.objects.create().pk, actors=actors), directed=True)

    wrong = [difference for outcome in result.outcomes for difference in outcome.differences]
    assert result.verdict == "broken"
    assert any("article_id bob#1 instead of ada#1" in difference for difference in wrong), wrong


def test_who_made_the_only_row_of_a_table_does_not() -> None:
    def joins(fixture: Any) -> None:
        user, _ = User.objects.get_or_create(username="ada")
        user.groups.add(Group.objects.get_or_create(name="guests")[0])

    result = explore(Scenario(set_up=lambda: None, actors=[joins] * 2), directed=True)

    assert (result.verdict, len(result.outcomes)) == ("nothing found", 1), result.reason


def _number(code: int) -> int:
    """Return the key of the author with this code, which the first caller makes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO press_author (name, code) VALUES ('', %s) ON CONFLICT (code) DO UPDATE SET name = '' "
            "RETURNING id",
            [code],
        )
        return int(cursor.fetchone()[0])


def test_who_made_which_of_several_rows_does_not() -> None:
    def seats_two(fixture: Any) -> None:
        numbers = [_number(code) for code in (1, 2)]
        Seat.objects.filter(row="A").update(guest=f"authors {numbers}")

    result = explore(Scenario(set_up=Seat.objects.create, actors=[seats_two] * 2))

    assert (result.verdict, len(result.outcomes)) == ("holds", 1), result.reason


def test_rows_that_were_rolled_back_are_not_counted() -> None:
    def second_one_tries_twice(fixture: Any) -> None:
        if Country.objects.exists():
            with transaction.atomic():
                Author.objects.create()
                transaction.set_rollback(True)
        Country.objects.create()
        Article.objects.create(author=Author.objects.create())

    result = explore(Scenario(set_up=lambda: None, actors=[second_one_tries_twice] * 2), directed=True)

    assert result.verdict == "nothing found", result.reason


SET_NUMBER = "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)"


# As many rows were there before, or a run was killed in their midst.
@pytest.mark.parametrize("last", [1, 739_000, 30_000_000])
def test_rows_of_the_set_up_keep_their_keys(last: int) -> None:
    keys: list[int] = []
    for table in ("press_author", "press_article"):
        query(SET_NUMBER, table, last)

    def author() -> int:
        keys.append(Author.objects.create().pk)
        return keys[-1]

    result = explore(Scenario(set_up=author, actors=[lambda pk: Article.objects.create(author_id=pk)]))

    (outcome,) = result.outcomes
    end: Any = outcome.state
    assert [article["author_id"] for article in end["press_article"]] == keys[-1:]
    for table in ("press_author", "press_article"):
        query(SET_NUMBER, table, 1)


def test_nor_does_it_in_a_table_of_which_only_written_rows_are_put_back() -> None:
    Author.objects.bulk_create(Author() for _ in range(30))

    result = explore(Scenario(set_up=lambda: None, actors=[publishes("Ada"), publishes("Bob")]), directed=True)

    assert result.verdict == "nothing found", result.reason


def test_a_key_stands_in_a_path_and_not_in_a_number() -> None:
    assert (
        label_text("seats.700001.price, 1.700001, 700001.5", {"700001": "#1"}) == "seats.#1.price, 1.700001, 700001.5"
    )


def in_a_text(seat: Seat) -> None:
    Seat.objects.create(row="B", guest=f"SEAT-{seat.pk}/{seat.row}")


def in_json(seat: Seat) -> None:
    Seat.objects.create(row="B", wishes={"beside": seat.pk, str(seat.pk): [seat.row]})


def as_a_number(seat: Seat) -> None:
    Turnstile.objects.create(passages=seat.pk)


COPIES = pytest.mark.parametrize("copy", [in_a_text, in_json, as_a_number])


@COPIES
def test_a_key_that_is_copied_is_that_key(copy: Callable[[Seat], None]) -> None:
    def makes() -> str:
        seat = Seat.objects.create()
        copy(seat)
        return f"/seats/{seat.pk}/"

    scenario = Scenario(actors={"ada": makes, "bob": makes})
    reduced, full = explore(scenario), explore(scenario, reduction="none")

    assert (reduced.verdict, full.verdict) == ("holds", "holds"), full.reason
    assert [outcome.results["ada"] for outcome in full.outcomes] == ["/seats/ada#1/"]


@COPIES
def test_the_key_of_the_other_ones_row_is_another_one(copy: Callable[[Seat], None]) -> None:
    def copies_the_newest() -> None:
        Seat.objects.create()
        copy(Seat.objects.filter(row="A").latest("pk"))

    assert explore(Scenario(actors=[copies_the_newest] * 2)).verdict == "broken"


def test_a_number_that_a_refused_row_has_taken_is_missing_in_texts_too() -> None:
    def makes() -> None:
        Author.objects.get_or_create(code=1)
        Seat.objects.create(guest=f"author {Author.objects.create().pk}")

    assert explore(Scenario(actors=[makes] * 2), directed=True).verdict == "nothing found"


def test_a_row_that_is_gone_again_is_told_by_who_made_it() -> None:
    def makes_and_deletes() -> None:
        seat = Seat.objects.create()
        in_a_text(seat)
        seat.delete()

    result = explore(Scenario(actors=[makes_and_deletes] * 2), directed=True)

    assert result.verdict == "nothing found", result.reason
    (outcome,) = result.outcomes
    assert "SEAT-A#gone/A" in str(outcome.state)


def test_sequences_go_on_where_they_were() -> None:
    before = Author.objects.create().pk

    explore(Scenario(set_up=lambda: None, actors=[publishes("Ada"), publishes("Bob")]), directed=True)

    assert Author.objects.create().pk == before + 1
