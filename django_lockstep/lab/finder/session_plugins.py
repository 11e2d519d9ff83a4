"""The two test sessions of the finder: one records; the other runs the witness tests, committed, and forks them."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.explorer.effects.operations import name_project_root
from django_lockstep.lab.finder.confirm.committed import committed_tests
from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.confirm.witnesses import TestPlace
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.recorder import Recorder
from django_lockstep.lab.finder.record.recording import RecordingWriter, merge_recordings
from django_lockstep.lab.finder.record.stack import CodeMap
from django_lockstep.lab.finder.report.files import write_reports
from django_lockstep.lab.finder.report.races import NOT_DECIDED, NOTHING_TRIED, Report
from django_lockstep.lab.finder.report.text import as_text, list_candidates, summary_of
from django_lockstep.lab.finder.sessions import Progress, Session, run_sessions
from django_lockstep.lab.finder.shares import Share, parse_budget


class RecordPlugin:
    """Records the tests, itself or by the workers of pytest-xdist; then lists the candidates, and tries them."""

    def __init__(self, config: pytest.Config, suppressions: Mapping[str, str]) -> None:
        self._suppressions = suppressions
        self._budget = parse_budget(config.getoption("--race-budget"))
        self._findings: Findings | None = None
        self._recorder: Recorder | None = None
        of_worker = config.workerinput["find_races"] if hasattr(config, "workerinput") else None
        self.path = Path(of_worker["path"]) if of_worker else _recording_path(config)
        # The same in all workers, so that their values can be compared.
        self._key = bytes.fromhex(of_worker["key"]) if of_worker else os.urandom(16)
        self._has_workers = of_worker is None and config.getoption("dist", "no") != "no"  # pytest-xdist
        self._parts: list[Path] = []
        """What the workers write."""
        self.is_recorded = False
        """Whether this run has written the file; another one may lie there."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        part = self.path.with_name(f"{self.path.name}.{node.gateway.id}")
        part.unlink(missing_ok=True)
        self._parts.append(part)
        node.workerinput["find_races"] = {"path": str(part), "key": self._key.hex()}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Have the recorder there for all tests."""
        # Its tests cannot be collected: pytest says so, and an earlier recording stays.
        if self._has_workers or session.testsfailed:
            return (yield)
        name_project_root(session.config.rootpath)
        code = CodeMap()
        for item in session.items:
            code.add_test_file(item.path)
        self.is_recorded = True
        fingerprints = Fingerprints(None if session.config.getoption("--race-values") else self._key)
        self._recorder = Recorder(RecordingWriter(self.path), code=code, fingerprints=fingerprints)
        with self._recorder.installed():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record the test's body."""
        if self._recorder is None:
            return (yield)
        self._recorder.begin_test(_test_id(item))
        try:
            return (yield)
        finally:
            self._recorder.end_test()

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Say where the recording is, and hand the candidates over."""
        if parts := [part for part in self._parts if part.exists()]:
            merge_recordings(parts, self.path)
            self.is_recorded = True
        if not self.is_recorded:
            terminalreporter.write_line("NOTHING WAS LOOKED AT: no test was recorded")
        if not self.is_recorded or hasattr(config, "workerinput"):
            return
        findings_path(self.path).unlink(missing_ok=True)  # on an earlier recording
        self._findings = Findings.on(self.path)
        # Also if the candidates are tried: then there is a report even if that ends early.
        report = write_report(config, self._findings, self._suppressions)
        terminalreporter.section("what may race")
        terminalreporter.write_line(summary_of(report))
        if not self._budget:
            terminalreporter.write_line(list_candidates(report))
        terminalreporter.write_line(f"recording: {self.path}; --race-confirm tries its candidates")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Try the candidates when all else is over, the database of the tests is gone, and the summary printed."""
        yield
        interrupted = session.exitstatus in {pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR}
        if interrupted or hasattr(session.config, "workerinput"):
            return
        status = self._confirm(session.config)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = status

    def _confirm(self, config: pytest.Config) -> int:
        if (findings := self._findings) is None:
            return NOTHING_TRIED
        status = self._confirm_in_second_session(config, findings) if self._budget and findings.candidates else 0
        # Written again: each of several sessions knows only what it has found itself.
        report = write_report(config, findings, self._suppressions)
        if self._budget:
            config.get_terminal_writer().line(as_text(report))
        return status or report.exit_status

    def _confirm_in_second_session(self, config: pytest.Config, findings: Findings) -> int:
        """Run the session, and return its exit status, or 0 if it came to its end, whatever it found.

        A process of its own, because this session's database and fixtures are gone by now, and because its tests
        commit. Its output goes into a file beside the recording, and is shown if it ends before it began. Several
        processes are as many sessions, each with its share of the candidates.
        """
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        write = partial(reporter.write, flush=True)
        progress = Progress(findings=findings, write=write, budget=self._budget, is_terminal=reporter.isatty)
        return run_sessions(
            _start_sessions(config, self.path),
            progress,
            # Of several sessions none knows what the others have found.
            completed=(0, 1, NOTHING_TRIED, NOT_DECIDED),
            interrupted=pytest.ExitCode.INTERRUPTED,
            option=f"--race-confirm={self.path}",
        )


_FLAGS = {"--find-races", "--pdb", "--trace", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"}
"""Options of the first session that would start a third one, wait for a person, or stop at the first failure."""
_OPTIONS = {"numprocesses": "-n0", "no_cov": "--no-cov", "timeout": "--timeout=0", "xmlpath": "--junit-xml="}
"""Of plugins, by what they set: one process, for a test that is forked takes long; reports are the first session's."""


def _start_sessions(config: pytest.Config, recording: Path) -> Iterator[Session]:
    """Start a session for each share: that of the session that recorded, with what makes it one that tries."""
    count = config.getoption("--race-processes")
    for share in (Share(number, count) for number in range(1, count + 1)):
        arguments = _arguments(config, cache=recording.parent / f"cache-{share.number}")
        own = (f"--race-confirm={recording}", f"--race-share={share}")
        command = [sys.executable, "-m", "pytest", *arguments, *own]
        yield Session(command, recording, share=share, folder=config.invocation_params.dir)


def _arguments(config: pytest.Config, *, cache: Path) -> Iterator[str]:
    """Yield those of the first session, then its root folder, settings and plugins, and what changes the rest."""
    call = config.invocation_params
    yield from (word for word in map(str, call.args) if word not in _FLAGS)
    # pytest looks for root and settings beside files that the command names: a report of another plugin, which the
    # first session has written, would change them.
    yield f"--rootdir={os.path.relpath(config.rootpath, call.dir)}"
    if config.inipath is not None:
        yield f"--config-file={os.path.relpath(config.inipath, call.dir)}"
    names = (getattr(plugin, "__name__", plugin) for plugin in call.plugins or ())
    yield from (f"-p{name}" for name in names if isinstance(name, str))
    yield "--maxfail=0"
    # Not by the plugins' names: one that -p or PYTEST_PLUGINS names has another one.
    # A cache of its own: what failed last is not what it has to run.
    options = {**_OPTIONS, "lf": f"--override-ini=cache_dir={cache}"}
    yield from (option for name, option in options.items() if hasattr(config.option, name))


def _recording_path(config: pytest.Config) -> Path:
    path: Path | None = config.getoption("--race-record")
    if path is not None:
        return path.absolute()
    cache = getattr(config, "cache", None)
    return (cache.mkdir("races") if cache is not None else Path(tempfile.mkdtemp(prefix="races-"))) / "recording.jsonl"


def write_report(config: pytest.Config, findings: Findings, suppressions: Mapping[str, str]) -> Report:
    """Return the report, and write it where one is asked for."""
    report = Report(findings, suppressions, root=config.rootpath)
    write_reports(report, config.getoption("--race-report"), config.getoption("--race-fix"))
    return report


def _test_id(item: pytest.Item) -> str:
    """Return the id that the test has without workers: pytest-xdist may append its groups with ``--dist loadgroup``."""
    marks = item.iter_markers("xdist_group")
    groups = {str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in marks}
    return item.nodeid.removesuffix(f"@{'_'.join(sorted(groups))}")


class ConfirmPlugin:
    """Hooks of a session that only tries candidates; it replaces whatever else the session would run."""

    def __init__(self, config: pytest.Config, suppressions: Mapping[str, str]) -> None:
        name_project_root(config.rootpath)
        findings = Findings.on(config.getoption("--race-confirm"))
        if text := config.getoption("--race-share"):
            share = Share.parse(text)
            findings.go_on(str(share))
            share.separate_test_databases()
        else:
            findings.record_deaths()
        budget = parse_budget(config.getoption("--race-budget"))
        self._confirmation = Confirmation(findings, budget=budget, values=config.getoption("--race-values"))
        self._report = partial(write_report, config, findings, suppressions)
        self._session = ExitStack()
        self._close_copies: Callable[[], None] = lambda: None

    @pytest.hookimpl(trylast=True)  # after plugins that sort or shuffle
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = self._confirmation.choose(items, lambda item: item.nodeid)
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen

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
                self._confirmation.mark_running(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self._confirmation.mark_running("")
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
        self._close_copies()  # pytest-django drops the databases now
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
            self._confirmation.close()
            session.exitstatus = self._report().exit_status
        else:
            self._confirmation.mark_running("")  # an interrupted test is not finished
            self._report()
        yield

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("races")
        terminalreporter.write_line(as_text(self._report()))
