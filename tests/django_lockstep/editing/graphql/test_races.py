"""Two requests for one table, each interrupted around its writes; the operations alone are explored whole elsewhere."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from django_lockstep.editing import take_over
from django_lockstep.lab.pytest_plugin import RaceFixture
from tests.django_lockstep.editing.callers import OPENING, allow
from tests.django_lockstep.editing.graphql.asking import CHECK_IN, CHECK_OUT, TRANSITION, Asker
from tests.django_lockstep.editing.story import held
from tests.testapps.press.models import Article

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.django_lockstep.editing.urls")]


def asker(name: str) -> Asker:
    user, _ = get_user_model().objects.get_or_create(username=name)
    return Asker(allow(user, "change_article", "change_author", "change_review"))


@dataclass
class Press:
    """One run: two programs, and what each was answered."""

    ada: Asker = field(default_factory=lambda: asker("ada"))
    bob: Asker = field(default_factory=lambda: asker("bob"))
    seen: dict[str, Any] = field(default_factory=dict)


def asks(who: str, query: str, **variables: Any) -> Any:
    def actor(press: Press) -> None:
        press.seen[who] = getattr(press, who).ask(query, **variables)["lock_result"]

    return actor


def one_got_it(press: Press) -> bool:
    """Whether one of two has all that it wanted, and the other nothing."""
    winner = {name for name, got in press.seen.items() if got}
    return len(winner) == 1 and {owner for _, _, owner in held()} == winner and len(held()) == 2


def ends(press: Press) -> str:
    return str(sorted(press.seen.items()))


@pytest.mark.parametrize(
    "request_of_bob",
    [(TRANSITION, {"wanted": OPENING}), (CHECK_OUT, {"table": "press.review"})],
    ids=["two transitions of one table", "a transition and a check-out of what refers to the same"],
)
def test_one_of_two_gets_it(race: RaceFixture, request_of_bob: tuple[str, dict[str, Any]]) -> None:
    query, variables = request_of_bob
    found = race(
        asks("ada", TRANSITION, wanted=OPENING),
        asks("bob", query, **variables),
        set_up=Press,
        directed=True,
        observe=ends,
        invariant=one_got_it,
    )
    assert len(found.outcomes) == 2


def test_a_check_in_while_it_is_taken_over(race: RaceFixture) -> None:
    def set_up() -> Press:
        press = Press()
        press.bob.user.is_superuser = True
        press.seen["token"] = press.ada.ask(CHECK_OUT, table="press.article")["token"]
        return press

    def checks_in(press: Press) -> None:
        answer = press.ada.post(CHECK_IN, table="press.article", token=press.seen["token"]).json()
        press.seen["ada"] = answer["data"] is not None or answer["errors"][0]["extensions"]["how"]

    def takes_over(press: Press) -> None:
        press.seen["bob"] = take_over(Article, press.bob.user).lock_result

    found = race(
        checks_in,
        takes_over,
        set_up=set_up,
        directed=True,
        observe=lambda press: press.seen["ada"],
        invariant=lambda press: press.seen["bob"] and {owner for _, _, owner in held()} == {"bob"},
    )
    assert {outcome.state for outcome in found.outcomes} == {"True", "taken over"}
