"""Who waits, and what for."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import Group

from tests.django_lockstep.monitor.lock_situations import ODD, LockSituation, execute
from tests.support.sessions import Session


@pytest.fixture
def situation(open_session: Callable[[], Session]) -> Iterator[LockSituation]:
    situation = LockSituation(open_session)
    yield situation
    situation.end()


@pytest.fixture
def group(transactional_db: None) -> Group:
    return Group.objects.create(name="A")


@pytest.fixture
def odd_table(transactional_db: None) -> Iterator[str]:
    execute(f'CREATE TABLE {ODD} ("The Key" text PRIMARY KEY, n int)', f"INSERT INTO {ODD} VALUES ('it''s', 0)")
    yield ODD
    execute(f"DROP TABLE {ODD}")
