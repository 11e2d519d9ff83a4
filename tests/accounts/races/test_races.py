"""The ready-made races show what they are here to show, and do so every time.

``RACE_ROUNDS=100`` runs the whole set so many times.
"""

import functools
import os
import threading
from dataclasses import replace

import pytest
from django.contrib.auth import get_user_model

from accounts.models import Account
from accounts.races.ready_made import RACES
from django_lockstep.lab.explorer import Exploration, explain, explore, replay
from django_lockstep.lab.explorer.render.explanations import find_explanation
from tests.django_lockstep.lab.explorer.programs import ends
from tests.support.sessions import ADVISORY_LOCKS, query, sessions, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("first_keys")]

ROUNDS = int(os.environ.get("RACE_ROUNDS", "2"))
MOST = 24 if ROUNDS == 2 else None
"""Schedules of a full search; as many as there are in many rounds."""
AGAIN = [*({name.partition(":")[0]: name for name in RACES}.values() if ROUNDS == 2 else RACES)]
"""The races that are explored again: one of each kind, unless there are many rounds."""


@pytest.fixture
def first_keys(transactional_db: None) -> None:
    """Rows of the set-up have the next keys, and what is compared was explored at different times."""
    key = "setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)"
    # Not those of tables whose rows stay, such as django_migrations.
    query(f"SELECT count({key}) FROM pg_sequences WHERE last_value IS NOT NULL AND sequencename !~ '^(django|auth)_'")


@functools.cache
def explored(name: str) -> Exploration:
    """Explore the race once for all that is said of it."""
    return explore(RACES[name].scenario, max_schedules=3000)


@pytest.mark.parametrize("name", RACES)
def test_a_race_comes_out_as_it_says(name: str) -> None:
    exploration = explored(name)

    assert RACES[name].as_expected(exploration), exploration.reason


NAMELESS = {"lease-takeover:looked-at"}
"""Races that look at one table and write by it to another one: no anomaly of single rows."""


@pytest.mark.parametrize("name", [name for name, race in RACES.items() if not race.holds and name not in NAMELESS])
def test_its_wrong_end_has_a_name(name: str) -> None:
    failure = explored(name).failure

    assert failure is not None
    assert explain(failure) != "unexplained"


# The statements of the mixtures, and of what may overdraw, are those of the others.
BUT_MIXTURES = [name for name in RACES if not name.startswith(("overdraft:", "mixed:"))]


@pytest.mark.parametrize("name", [name for name in BUT_MIXTURES if RACES[name].holds])
def test_safe_code_is_not_explained_even_if_its_end_is_called_wrong(name: str) -> None:
    doubted = replace(RACES[name].scenario, invariant=lambda fixture: False)
    runs = (replay(doubted, outcome.schedule) for outcome in explored(name).outcomes)

    kinds = {find_explanation(run).kind for run in runs}
    assert kinds <= {"unexplained", "constraint violation", "deadlock", "no race"}


def test_a_race_that_waits_where_it_should_not_is_not_as_expected() -> None:
    waiting, free = RACES["child-insert:for-update"], RACES["child-insert:no-key"]
    exploration, exploration_without = explore(waiting.scenario), explore(free.scenario)

    assert (exploration.waits.keys(), exploration_without.waits.keys()) == ({"COMMIT"}, set())
    assert not replace(waiting, waits=frozenset()).as_expected(exploration)
    assert not replace(free, waits=frozenset({"COMMIT"})).as_expected(exploration_without)


@pytest.mark.parametrize("name", BUT_MIXTURES)
def test_full_and_reduced_search_agree(name: str) -> None:
    full, reduced = explore(RACES[name].scenario, reduction="none", max_schedules=MOST), explored(name)

    if full.left:  # the few with thousands of schedules: of what there was time for, all is found
        assert ends(full) <= ends(reduced)
    else:
        assert ends(reduced) == ends(full)
        assert reduced.schedules <= full.schedules


def seen_in(result: Exploration) -> tuple[object, ...]:
    """Return everything that has to be the same in the next round."""
    ends = tuple((o.count, o.schedule, *o.errors.items(), *o.results.items(), o.end) for o in result.outcomes)
    return result.verdict, result.reason, result.schedules, result.deadlocks, *result.errors.items(), ends


def nothing_is_left(before: int) -> bool:
    """Whether no row, connection, lock or thread is there; a server process takes a moment to end."""
    return not (
        Account.objects.exists()
        or get_user_model().objects.exists()
        or sessions() > before
        or query(f"SELECT count(*) FROM {ADVISORY_LOCKS}")
        or any(thread.name.startswith("race") for thread in threading.enumerate())
    )


def test_every_round_is_the_same_and_leaves_nothing_behind(no_kept_sessions: None) -> None:
    before = sessions()
    for number in range(1, ROUNDS):
        for name in AGAIN:
            again = explore(RACES[name].scenario, max_schedules=3000)
            assert seen_in(again) == seen_in(explored(name)), f"{name} in round {number + 1}"
        until(lambda: nothing_is_left(before), f"round {number + 1} to leave nothing behind")


# Directed searches of the ready-made races find each broken one, and nothing in the others


@pytest.mark.parametrize("name", BUT_MIXTURES)
def test_a_directed_race_comes_out_as_it_says(name: str) -> None:
    exploration = explore(RACES[name].scenario, directed=True)

    assert RACES[name].as_expected(exploration), exploration.reason
    assert exploration.verdict == ("nothing found" if RACES[name].holds else "broken")
