"""The second test session of the finder: runs the witness tests, committed, and forks at their requests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.calls import intercept_calls
from django_lockstep.lab.finder.candidates import Candidate
from django_lockstep.lab.finder.committed import committed_tests
from django_lockstep.lab.finder.confirm import Confirmation
from django_lockstep.lab.finder.derive import find_candidates
from django_lockstep.lab.finder.files import read_recording
from django_lockstep.lab.finder.findings import Finding, Findings, findings_path
from django_lockstep.lab.finder.report import as_text, status_of
from django_lockstep.lab.finder.reproduction import TestPlace, with_test_file
from django_lockstep.lab.finder.requests import intercept
from django_lockstep.lab.finder.suppressions import Suppression

__all__ = ["ConfirmPlugin"]


class ConfirmPlugin:
    """Hooks of pytest for a session that only confirms; it replaces whatever else the session would run."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        found: Findings,
        *,
        budget: float,
        suppressed: Sequence[Suppression],
        values: bool = False,
    ) -> None:
        self._candidates = {candidate.id: candidate for candidate in candidates}
        self._confirmation = Confirmation(found.undecided(), budget=budget, report=self._add, values=values)
        self._found = found
        self._suppressed = suppressed
        self._places: dict[str, TestPlace] = {}
        self._session = ExitStack()
        self._close_copies: Callable[[], None] = lambda: None

    @classmethod
    def for_recording(
        cls, path: Path, *, budget: float, suppressed: Sequence[Suppression], values: bool = False
    ) -> ConfirmPlugin:
        """Return the plugin for a recording's candidates, without those that an earlier session has decided.

        Raises ``OSError`` and `NotARecording` if there is no recording.
        """
        candidates = find_candidates(read_recording(path))
        found = Findings(findings_path(path), candidates)
        return cls(candidates, found, budget=budget, suppressed=suppressed, values=values)

    def _add(self, finding: Finding) -> None:
        self._found.add(with_test_file(self._candidates[finding.candidate], finding, self._places))

    @pytest.hookimpl(trylast=True)  # after plugins that sort or shuffle
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        order = {test: place for place, test in enumerate(self._confirmation.tests())}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        for item in items:
            # Before the test database is dropped, the explorer's sessions have to be closed.
            if "_race_sessions" not in (names := getattr(item, "fixturenames", [])):
                names.insert(0, "_race_sessions")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        # Raised in the middle of a fork, an interrupt would become the outcome of an actor, or of the test.
        before = signal.signal(signal.SIGINT, lambda number, frame: self._stop(session))
        self._session.callback(signal.signal, signal.SIGINT, before)
        # To the session's end: an interrupted test is torn down after the loop.
        self._close_copies = self._session.enter_context(committed_tests())
        self._session.enter_context(intercept(self._on_request))

    def pytest_unconfigure(self) -> None:
        self._session.close()

    def _stop(self, session: pytest.Session) -> None:
        """End the session after the fork that is being made; a second interrupt ends it at once."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        session.shouldstop = "interrupted"
        self._confirmation.budget = 0.0  # no further fork

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Not left out of the session: pytest tears down what the next item does not need.
        if not self._confirmation.is_wanted(item.nodeid):
            pytest.skip("its candidates are decided, or the time is over")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._places[item.nodeid] = TestPlace.of(item)
        self._confirmation.begin(item.nodeid)
        try:
            with intercept_calls(self._confirmation.calls(), self._confirmation.handle_call):
                return (yield)
        finally:
            self._confirmation.begin("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
            self._confirmation.note_failure(report.nodeid, crash.message.partition("\n")[0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """End with 1 if a race is confirmed that is not suppressed, whatever the tests did that were forked."""
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
            self._confirmation.close()
            session.exitstatus = status_of(self._found, self._suppressed)
        else:
            self._close_copies()
        yield

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("races")
        terminalreporter.write_line(as_text(self._found, self._suppressed))

    def _on_request(self, handler: Any, environ: dict[str, Any], call_next: Any) -> Any:
        return self._confirmation.handle_request(environ, call_next)
