"""Six processes start to edit tables that share references, again and again; one of them may be killed."""

import os
import signal
from collections import Counter
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F

from django_lockstep.editing import check_in, check_out, status_of
from django_lockstep.editing.models import CheckOut, EditLock
from tests.django_lockstep.editing.story import held
from tests.support.factories import UserFactory
from tests.support.processes import processes
from tests.testapps.press.models import Article, Author, City, Comment, Country, Review

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = int(os.environ.get("EDITING_ROUNDS", "20"))
"""Rounds of every process; 200 take a minute or two."""
TABLES = (Article, Review, City, Comment, Country, Author)


def work(number: int, user: int, rounds: int) -> Counter[str]:
    """Check out one table after another, look around, check in; count what happened."""
    editor, seen = get_user_model().objects.get(pk=user), Counter[str]()
    for turn in range(rounds):
        table = TABLES[(number + turn) % len(TABLES)]
        result = check_out(table, editor, shared_references=turn % 2 == 0)
        seen["granted" if result.lock_result else "refused"] += 1
        seen.update(wrong())
        if result.lock_result:
            check_in(table, editor, token=result.token)
    return seen


def wrong() -> list[str]:
    """Return what must never be seen: two holders of one table, or a check-out that has a part of its tables."""
    with transaction.atomic():
        locks = list(EditLock.objects.values_list("check_out_id", "check_out__model", "model", "status", "shared"))
    found = []
    for table in {lock[2] for lock in locks}:
        holders = [lock for lock in locks if lock[2] == table]
        if len(holders) > 1 and not all(shared for *_, shared in holders):
            found.append(f"two holders of {table}")
    for check_out_id, root, *_ in locks:
        has = {lock[2] for lock in locks if lock[0] == check_out_id}
        if has != EVERYTHING[root]:
            found.append(f"{root} is out with {has} only")
    return found


EVERYTHING = {
    "press.article": {"press.article", "press.author"},
    "press.author": {"press.author"},
    "press.city": {"press.city", "press.country", "press.author"},
    "press.comment": {"press.comment", "press.article", "auth.user"},
    "press.country": {"press.country", "press.city"},
    "press.review": {"press.review", "press.author"},
}


def test_six_processes_never_share_a_table_and_leave_all_of_them_free() -> None:
    users = [UserFactory.create().pk for _ in range(6)]
    with processes(6) as pool:
        counts = sum((done for done in pool.map(work, range(6), users, [ROUNDS] * 6)), Counter[str]())
    assert set(counts) == {"granted", "refused"}, counts
    assert counts.total() == 6 * ROUNDS
    assert held() == set()


def take_and_die(user: int, committed: bool) -> None:
    """Check out, and be killed before or after the commit."""
    with transaction.atomic():
        check_out(Article, get_user_model().objects.get(pk=user))
        if not committed:
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("committed", [False, True])
def test_who_is_killed_leaves_everything_free_after_the_time_to_live(bob: Any, committed: bool) -> None:
    with processes(1) as pool:
        died = pool.submit(take_and_die, bob.pk, committed)
        wait([died])
    assert isinstance(died.exception(), BrokenProcessPool)
    assert (status_of(Article).current_status == "editing") is committed
    CheckOut.objects.update(expires_at=F("expires_at") - (F("expires_at") - F("since")))
    assert status_of(Article).current_status == status_of(Author).current_status == "normal"
    assert check_out(Review, bob).lock_result
