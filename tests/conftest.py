"""Fixtures of all tests."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.core.cache import cache
from django.test import TransactionTestCase
from django.utils import translation
from hypothesis import HealthCheck, settings

from accounts.models import Account
from django_lockstep.lab.explorer.tables import control_session
from tests.support.emptying import Emptying
from tests.support.factories import AccountFactory
from tests.support.sessions import Session

# The suites of projects of their own, which tests.support.seeded_shop runs.
collect_ignore = ["testapps/seeded_shop", "testapps/seeded_club"]

pytest_plugins = [
    "django_lockstep.lab.pytest_plugin",
    "tests.support.cluster",
    "tests.support.scratch",
    "tests.support.selection",
    "tests.support.dynamodb",
]

# A shell that starts a program in the background lets it, and all that it starts, ignore Ctrl-C; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes examples slow, not wrong.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    """Let tests that commit be cleared up after in a few milliseconds."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]
    emptying = Emptying()

    def clear(self: TransactionTestCase) -> None:
        databases = self._databases_names(include_mirrors=False)  # type: ignore[attr-defined]
        if not all(emptying.empty(using) for using in databases):
            flush(self)
            for using in databases:
                emptying.remember(using)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", clear)
        yield


@pytest.fixture(scope="session", autouse=True)
def _explorers_sessions(_race_sessions: None) -> None:
    """Keep the explorer's sessions for the next test, also where it is called without the fixture ``race``."""


@pytest.fixture
def no_kept_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have explorations of this test open sessions of their own, and end them."""
    monkeypatch.setattr(control_session, "_kept", [])


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    """Forget what a test has cached: a race that fails says what was there when it began."""
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _language_of_the_settings() -> Iterator[None]:
    """Forget the language that a request asked for: the middleware leaves it to the thread."""
    yield
    translation.deactivate()


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
