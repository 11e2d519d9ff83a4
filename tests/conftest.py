"""Fixtures of all tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from accounts.models import Account
from tests.factories import AccountFactory
from tests.sessions import Session

pytest_plugins = ["accounts.lab.pytest_plugin"]


@pytest.fixture
def account(db: None) -> Account:
    """An account with 100 and no overdraft."""
    return AccountFactory.create(balance=100)


@pytest.fixture
def open_session(transactional_db: None) -> Iterator[Callable[[], Session]]:
    """Open sessions beside the test's own; all are closed with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Session())


@pytest.fixture
def other(open_session: Callable[[], Session]) -> Session:
    """One session beside the test's own."""
    return open_session()
