"""Fixtures of the explorer's tests."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.lab.explorer import Scenario, processes
from django_lockstep.lab.explorer.options import Options
from django_lockstep.lab.explorer.session import ExplorationSession, exploration_session
from tests.django_lockstep.lab.explorer import stories
from tests.support.sessions import Session, sessions, until
from tests.testapps.shop.models import Seat

Exploring = Callable[[Scenario], AbstractContextManager[ExplorationSession]]


@pytest.fixture
def exploring(transactional_db: None) -> Exploring:
    """Opens the session of a scenario, on the test's database."""
    return lambda scenario: exploration_session(scenario, Options())


@pytest.fixture
def nothing_stays(transactional_db: None, no_kept_sessions: None) -> Iterator[None]:
    """Requires that sessions, threads and hooks of an exploration are gone at the end."""
    before, threads = sessions(), set(threading.enumerate())
    yield
    until(lambda: sessions() <= before, "the server to end the sessions")
    assert not {thread.name for thread in set(threading.enumerate()) - threads if thread.name.startswith("race")}
    # Its own are methods; versioned models keep one that is none.
    assert not [wrapper for wrapper in connections[DEFAULT_DB_ALIAS].execute_wrappers if inspect.ismethod(wrapper)]
    assert "wait" not in vars(connections[DEFAULT_DB_ALIAS].connection or object)


@pytest.fixture
def no_seats(transactional_db: None) -> Iterator[None]:
    yield
    assert not Seat.objects.exists()


@pytest.fixture
def beside(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A second alias for the same database, which this test may not use."""
    monkeypatch.setitem(connections.databases, "beside", connections[DEFAULT_DB_ALIAS].settings_dict.copy())
    yield "beside"
    connections["beside"].close()
    del connections["beside"]


@pytest.fixture
def allowed(beside: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A second alias for the same database."""
    _allow(beside, monkeypatch)
    return beside


@pytest.fixture
def own(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The alias of a database that was not made for tests."""
    monkeypatch.setitem(
        connections.databases, "own", {**connections[DEFAULT_DB_ALIAS].settings_dict, "NAME": "postgres"}
    )
    _allow("own", monkeypatch)
    yield "own"
    connections["own"].close()
    del connections["own"]


def _allow(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = BaseDatabaseWrapper.ensure_connection

    def ensure_connection(self: BaseDatabaseWrapper) -> None:
        if self.alias == alias and self.connection is None:
            self.connect()
        guarded(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", ensure_connection)


@pytest.fixture
def workers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the workers after the first schedule."""
    monkeypatch.setattr(processes, "_ALONE", 0.0)


@pytest.fixture
def held(transactional_db: None, other: Session) -> Iterator[int]:
    """A seat that a session outside of the race has locked."""
    pk = stories.one_seat()
    other.begin()
    other.run(list, Seat.objects.select_for_update().filter(pk=pk))
    yield pk
    other.end()
