"""The second test session of the finder: runs the witness tests, committed, and forks at their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections
from django.test import TestCase, TransactionTestCase

from django_lockstep.lab.explorer import close_idle_sessions
from django_lockstep.lab.explorer.databases import require_disposable
from django_lockstep.lab.explorer.server import Server
from django_lockstep.lab.finder.calls import intercept_calls
from django_lockstep.lab.finder.confirm import Confirmation
from django_lockstep.lab.finder.requests import intercept

__all__ = ["ConfirmPlugin"]


class ConfirmPlugin:
    """Hooks of pytest for a session that only confirms; it replaces whatever else the session would run."""

    def __init__(self, confirmation: Confirmation) -> None:
        self._confirmation = confirmation
        self._servers: dict[str, Server] = {}

    @pytest.hookimpl(trylast=True)  # after plugins that sort or shuffle
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = {test: place for place, test in enumerate(self._confirmation.tests())}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Not left out of the session: pytest tears down what the next item does not need.
        if not self._confirmation.is_wanted(item.nodeid):
            pytest.skip("its candidates are decided, or the time is over")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._confirmation.begin(item.nodeid)
        try:
            with intercept_calls(self._confirmation.calls(), self._confirmation.handle_call):
                return (yield)
        finally:
            self._confirmation.begin("")

    @pytest.fixture(scope="session", autouse=True)
    def _committed_tests(self, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
        """Let every test commit, so that other sessions see its rows; put the databases back after it."""
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            patch.setattr(TestCase, "_databases_support_transactions", classmethod(lambda cls: False))
            patch.setattr(TransactionTestCase, "_fixture_teardown", lambda test: self._put_back())
            with django_db_blocker.unblock():
                self._copy([alias for alias in connections if connections[alias].vendor == "postgresql"])
            stack.callback(close_idle_sessions)
            stack.callback(self._close)
            stack.enter_context(intercept(self._on_request))
            yield

    def _copy(self, aliases: Sequence[str]) -> None:
        for alias in aliases:
            require_disposable(alias)
            self._servers[alias] = Server(alias, exclusive=False)
            self._servers[alias].save_all()

    def _put_back(self) -> None:
        for server in self._servers.values():
            server.reset()

    def _close(self) -> None:
        for server in self._servers.values():
            server.close()

    def _on_request(self, handler: Any, environ: dict[str, Any], call_next: Any) -> Any:
        return self._confirmation.handle_request(environ, call_next)
