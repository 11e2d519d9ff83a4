"""The second test session of the finder: runs the witness tests, committed, and forks at their requests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from django_lockstep.lab.finder.confirm.committed import committed_tests
from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.confirm.reproduction import TestPlace
from django_lockstep.lab.finder.report.races import Report
from django_lockstep.lab.finder.report.text import as_text

__all__ = ["ConfirmPlugin"]


class ConfirmPlugin:
    """Hooks of pytest for a session that only confirms; it replaces whatever else the session would run.

    ``report`` returns what is known so far, and writes it where a report is asked for.
    """

    def __init__(self, confirmation: Confirmation, report: Callable[[], Report]) -> None:
        self._confirmation = confirmation
        self._report = report
        self._session = ExitStack()
        self._close_copies: Callable[[], None] = lambda: None

    @pytest.hookimpl(trylast=True)  # after plugins that sort or shuffle
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = self._confirmation.choose(items, lambda item: item.nodeid)
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
        for item in items:
            # Before the test database is dropped, the explorer's sessions have to be closed.
            if "_race_sessions" not in (names := getattr(item, "fixturenames", [])):
                names.insert(0, "_race_sessions")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        # Raised in the middle of a fork, an interrupt would become the outcome of an actor, or of the test.
        before = signal.signal(signal.SIGINT, lambda number, frame: self._stop(session))
        self._session.callback(signal.signal, signal.SIGINT, before)
        # To the session's end: an interrupted test is torn down after the loop.
        self._close_copies = self._session.enter_context(committed_tests())
        if session.testsfailed:
            return None  # pytest says what it could not collect
        items: Sequence[Any]
        for items in self._confirmation.rounds(session.items, lambda item: item.nodeid):
            # After the last one of a round what belongs to the session stays: the next round needs it.
            for item, following in zip(items, [*items[1:], session], strict=False):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        return True

    def pytest_unconfigure(self) -> None:
        self._session.close()

    def _stop(self, session: pytest.Session) -> None:
        """End the session after the fork that is being made; a second interrupt ends it at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session.shouldstop = "interrupted"
        self._confirmation.budget = 0.0  # no further fork

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._confirmation.mark_running(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        self._confirmation.mark_running("")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Not left out of the session: pytest tears down what the next item does not need.
        if not self._confirmation.is_wanted(item.nodeid):
            pytest.skip("its candidates are decided, or the time is over")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with self._confirmation.running(item.nodeid, TestPlace.of(item)):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
            self._confirmation.note_failure(report.nodeid, crash.message.partition("\n")[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """End with 1 if a race is confirmed that is not suppressed, whatever the tests did that were forked."""
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
            self._confirmation.close()
            session.exitstatus = self._report().exit_status
        else:
            self._confirmation.mark_running("")  # an interrupted test is not finished
            self._close_copies()
            self._report()
        yield

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("races")
        terminalreporter.write_line(as_text(self._report()))
