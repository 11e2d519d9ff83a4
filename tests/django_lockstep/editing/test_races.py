"""What holds in every interleaving: check-outs against each other, against writes, and at the end of their time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from django_lockstep.editing import (
    EditLocked,
    EditLockLost,
    check_in,
    check_out,
    extend,
    require_editable,
    status_of,
    take_over,
    writing,
)
from django_lockstep.editing.errors import ReferencesChanged
from django_lockstep.editing.requests import transition
from django_lockstep.editing.results import StatusTransition
from django_lockstep.editing.targets import target_of
from django_lockstep.lab.pytest_plugin import RaceFixture
from tests.django_lockstep.editing.people import expire, held
from tests.support.sessions import Session, until
from tests.testapps.press.models import Article, Author, Review

pytestmark = pytest.mark.django_db(transaction=True)


Step = Callable[["Press"], Any]


@dataclass
class Press:
    """One run: its rows, and what became of each actor."""

    ada: Any = field(default_factory=lambda: get_user_model().objects.get_or_create(username="ada")[0])
    bob: Any = field(default_factory=lambda: get_user_model().objects.get_or_create(username="bob")[0])
    article: Article = field(
        default_factory=lambda: Article.objects.create(author=Author.objects.create(), title="Old")
    )
    seen: dict[str, Any] = field(default_factory=dict)

    def title(self) -> str:
        return Article.objects.get(pk=self.article.pk).title


def checks_out(what: Step, who: str, *, read: bool = False, **options: Any) -> Step:
    """Return an actor that notes whether it got it, and the title it found then."""

    def actor(press: Press) -> None:
        press.seen[who] = check_out(what(press), getattr(press, who), **options).lock_result
        if read:
            press.seen[f"{who} read"] = press.title()

    return actor


def saves(press: Press) -> None:
    """Change the title without having checked out anything."""
    press.article.title = "New"
    try:
        press.article.save()
        press.seen["saved"] = True
    except EditLocked:
        press.seen["saved"] = False


def ends(press: Press) -> str:
    """Return who got what, without the tokens, which are different in every run."""
    return str(sorted((name, value) for name, value in press.seen.items() if isinstance(value, bool | str)))


def one_got_it(press: Press) -> bool:
    """Whether one of two has all that it wanted, and the other nothing."""
    owners = {owner for _, _, owner in held()}
    winner = {name for name in ("ada", "bob") if press.seen[name]}
    return len(winner) == 1 and owners == winner and len(held()) == 2


def nothing_changed_behind_the_editor(press: Press) -> bool:
    """Whether the title that the editor found is still there; a save either came before or was refused."""
    return bool(press.seen["ada"] and press.title() == press.seen["ada read"])


ARTICLES, AUTHORS, REVIEWS = (lambda _: Article), (lambda _: Author), (lambda _: Review)


@pytest.mark.parametrize("what", [REVIEWS, lambda press: press.article], ids=["two tables", "a table and its record"])
def test_two_check_outs(race: RaceFixture, what: Step) -> None:
    race(checks_out(ARTICLES, "ada"), checks_out(what, "bob"), set_up=Press, observe=ends, invariant=one_got_it)


def test_the_one_refers_to_the_other(race: RaceFixture) -> None:
    def never_both(press: Press) -> bool:
        return press.seen["ada"] != press.seen["bob"] and {owner for _, _, owner in held()} <= {"ada", "bob"}

    race(checks_out(ARTICLES, "ada"), checks_out(AUTHORS, "bob"), set_up=Press, observe=ends, invariant=never_both)


def test_both_share_what_they_refer_to(race: RaceFixture) -> None:
    race(
        checks_out(ARTICLES, "ada", shared_references=True),
        checks_out(REVIEWS, "bob", shared_references=True),
        set_up=Press,
        observe=ends,
        invariant=lambda press: press.seen["ada"] and press.seen["bob"] and len(held()) == 4,
    )


@pytest.mark.parametrize("what", [ARTICLES, lambda press: press.article], ids=["its table", "the record"])
def test_a_save_while_somebody_checks_out(race: RaceFixture, what: Any) -> None:
    exploration = race(
        checks_out(what, "ada", read=True),
        saves,
        set_up=Press,
        invariant=nothing_changed_behind_the_editor,
        observe=lambda press: press.seen["saved"],
    )
    assert {outcome.state for outcome in exploration.outcomes} == {"True", "False"}


def test_a_late_save_while_somebody_else_checks_out(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.seen["late"] = check_out(press.article, press.ada)
        expire(press.seen["late"])
        return press

    def late(press: Press) -> None:
        press.article.title = "Late"
        with writing(press.ada, token=press.seen["late"].token), pytest.raises(EditLockLost):
            press.article.save()

    race(
        late,
        checks_out(lambda press: press.article, "bob"),
        set_up=set_up,
        observe=ends,
        invariant=lambda press: press.seen["bob"] and press.title() == "Old",
    )


def test_a_save_while_it_is_taken_over(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.ada.is_superuser = press.bob.is_superuser = True
        press.seen["out"] = check_out(press.article, press.ada)
        return press

    def saves_with_it(press: Press) -> None:
        press.article.title = "New"
        try:
            with writing(press.ada, token=press.seen["out"].token):
                press.article.save()
        except EditLockLost:
            press.seen["refused"] = True

    def takes_over(press: Press) -> None:
        press.seen["ada"] = take_over(press.article, press.bob).lock_result
        press.seen["ada read"] = press.title()

    race(saves_with_it, takes_over, set_up=set_up, observe=ends, invariant=nothing_changed_behind_the_editor)


def test_a_check_in_while_it_is_taken_over(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.bob.is_superuser = True
        press.seen["token"] = check_out(Article, press.ada).token
        return press

    def checks_in(press: Press) -> None:
        try:
            press.seen["ada"] = check_in(Article, press.ada, token=press.seen["token"]).lock_result
        except EditLockLost as lost:
            press.seen["ada"] = lost.how

    def takes_over(press: Press) -> None:
        press.seen["bob"] = take_over(Article, press.bob).lock_result

    races = race(
        checks_in,
        takes_over,
        set_up=set_up,
        observe=lambda press: press.seen["ada"],
        invariant=lambda press: press.seen["bob"] and {owner for _, _, owner in held()} == {"bob"},
    )
    assert {outcome.state for outcome in races.outcomes} == {"True", "taken over"}


def test_a_foreign_key_that_changes_while_the_record_is_checked_out(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.seen["other"] = Author.objects.create()
        return press

    def moves(press: Press) -> None:
        press.article.author = press.seen["other"]
        try:
            press.article.save()
        except EditLocked:
            press.seen["refused"] = True

    def checks(press: Press) -> None:
        try:
            check_out(press.article, press.ada)
        except ReferencesChanged:
            press.seen["changed"] = True

    def the_author_it_has_is_locked(press: Press) -> bool:
        author = Article.objects.get(pk=press.article.pk).author
        return press.seen.get("changed", False) or status_of(author, related="none").current_status == "locked"

    race(moves, checks, set_up=set_up, observe=ends, invariant=the_author_it_has_is_locked)


def test_the_expected_status_form(race: RaceFixture) -> None:
    change = StatusTransition(
        table="",
        current_status="normal",
        target_status="editing",
        fk_current_status=["normal"],
        fk_target_status=["locked"],
    )

    def drives(what: Any, who: str) -> Callable[[Press], None]:
        def actor(press: Press) -> None:
            result = transition(target_of(what), [target_of(Author)], change=change, editor=getattr(press, who))
            press.seen[who] = result.lock_result

        return actor

    race(drives(Article, "ada"), drives(Review, "bob"), set_up=Press, observe=ends, invariant=one_got_it)


# Schedules that need the clock to go on in between: driven by hand.


def test_who_is_being_extended_does_not_expire_meanwhile(other: Session) -> None:
    press = Press()
    token = check_out(Article, press.ada, ttl=3).token
    with transaction.atomic():
        extend(Article, press.ada, token=token, ttl=60)
        until(lambda: other.run(_seems_expired), "the old time to be over")
        answer = other.start(check_out, Article, press.bob)
        other.wait_until_blocked()
    assert not answer.result(20).lock_result


def _seems_expired() -> bool:
    return status_of(Article).current_status == "normal"


def test_very_many_fenced_records_and_one_check_out_exclude_each_other(other: Session) -> None:
    press = Press()
    keys = [Author.objects.create().pk for _ in range(120)]
    with transaction.atomic():
        require_editable(Author, keys)
        answer = other.start(check_out, Author.objects.get(pk=keys[0]), press.ada)
        other.wait_until_blocked()
    assert answer.result(20).lock_result


def test_check_in_waits_for_nobody(other: Session) -> None:
    press = Press()
    check_out(press.article, press.ada)
    with transaction.atomic():
        require_editable(Review)
        assert other.run(check_in, press.article, press.ada).lock_result


def test_two_editors_who_write_what_the_other_has_are_both_refused_without_a_deadlock(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.seen["author"] = Author.objects.create()
        press.seen["tokens"] = [
            check_out(target, who, related="none").token
            for target, who in [(press.article, press.ada), (press.seen["author"], press.bob)]
        ]
        return press

    def writes(number: int) -> Step:
        def actor(press: Press) -> None:
            editor, other = [(press.ada, press.seen["author"]), (press.bob, press.article)][number]
            with writing(editor, token=press.seen["tokens"][number]), pytest.raises(EditLocked):
                other.save()
            press.seen[str(number)] = True

        return actor

    race(writes(0), writes(1), set_up=set_up, observe=ends, invariant=lambda press: {"0", "1"} <= set(press.seen))
