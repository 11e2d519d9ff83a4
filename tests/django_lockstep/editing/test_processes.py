"""A process that is killed while it has a table."""

import os
import signal
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F

from django_lockstep.editing import check_out, status_of
from django_lockstep.editing.models import CheckOut
from tests.support.processes import processes
from tests.testapps.press.models import Article, Author, Review

pytestmark = pytest.mark.django_db(transaction=True)


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
