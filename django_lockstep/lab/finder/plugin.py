"""pytest's side of the finder: ``--find-races`` records the tests that run, then confirms what may race.

Nothing of Django or the finder is imported unless one of its options is given.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_lockstep.lab.finder.shares import Share, parse_budget

if TYPE_CHECKING:
    from django_lockstep.lab.finder.confirm_plugin import ConfirmPlugin
    from django_lockstep.lab.finder.findings import Findings
    from django_lockstep.lab.finder.record.recorder import Recorder
    from django_lockstep.lab.finder.report.races import Report, Suppression

__all__ = ["add_options", "budget_of", "list_recording", "register"]

_FILE = "recording.jsonl"


def add_options(group: Any) -> None:
    """Add the options of the finder."""
    for name, text in _SWITCHES.items():
        group.addoption(name, action="store_true", help=text)
    for name, text in _FILES.items():
        group.addoption(name, type=Path, default=None, metavar="FILE", help=text)
    for name, (default, metavar, text) in _VALUES.items():
        group.addoption(name, type=type(default or ""), default=default, metavar=metavar, help=text)
    # What one of them has to try.
    group.addoption("--race-share", default=None, help=argparse.SUPPRESS)


_SWITCHES = {
    "--find-races": "record what the tests do, then try what may race by running it twice at the same time",
    "--race-values": "record parameters and rows as they are; without it only whether two are equal can be seen, and "
    "reports show no strings longer than 20 characters",
}
_FILES = {
    "--race-confirm": "try the candidates of an earlier recording, as the second part of --find-races does, but for "
    "those that are decided",
    "--race-report": "write a report; the ending chooses the format: .txt, .json, .html, .sarif or .xml for JUnit",
    "--race-fix": "write the first change of the code that was tried and helps, as a diff for git apply",
    "--race-record": "where the recording is kept (default: a file in pytest's cache, named at the end)",
    "--race-candidates": "list the candidates of an earlier recording; no test is run",
    "--race-baseline": "an earlier report, ending in .json: the races that it confirms are accepted",
}
_VALUES: dict[str, tuple[Any, str, str]] = {
    "--race-budget": ("5m", "TIME", "time for these tries, such as 90s (default: 5m), the worst first; 0 only lists"),
    "--race-processes": (1, "N", "processes that try them, each with a test database of its own (default: 1)"),
    "--race-cluster": (None, "tcp://HOST:PORT", "Dask scheduler; workers try shares, in the folder of their start"),
}


def register(config: pytest.Config) -> None:
    """Have the tests recorded, or the candidates tried, where that is asked for."""
    if config.option.collectonly or (hasattr(config, "workerinput") and not config.getoption("--find-races")):
        return
    confirming = config.getoption("--race-confirm")
    if not (confirming or config.getoption("--find-races")):
        return
    suppressed = _require_usable(config)
    # The second session may have been given --find-races, too, by the project's settings or the environment.
    plugin = _confirming(config, confirming, suppressed) if confirming else _Recording(config, suppressed)
    config.pluginmanager.register(plugin)


@contextmanager
def _refused(option: str = "") -> Iterator[None]:
    """Have pytest say what is wrong with an option, or with the project's settings, and end."""
    from django.core.exceptions import ImproperlyConfigured

    from django_lockstep.errors import LockstepError

    try:
        yield
    except (OSError, ValueError, ImportError, ImproperlyConfigured, LockstepError) as error:
        raise pytest.UsageError(f"{option}: {error}" if option else str(error)) from error


def _require_usable(config: pytest.Config) -> list[Suppression]:
    """Refuse what could only fail after all tests; return the races that the project accepts."""
    budget_of(config)
    with _refused("--race-processes"):
        _require_processes(config)
    # Not in each process that records, nor in those that the cluster runs.
    if (cluster := config.getoption("--race-cluster")) and not (
        hasattr(config, "workerinput") or config.getoption("--race-confirm")
    ):
        with _refused("--race-cluster"):
            from django_lockstep.lab.workers.cluster import connect

            with connect(cluster):
                pass
    with _refused("--find-races"):
        import django
        from django.apps import apps

        # pytest-django does it later, if a conftest configures the settings.
        if not apps.ready:
            django.setup()
        from django_lockstep.lab.finder.report.files import require_report
        from django_lockstep.lab.finder.report.races import read_suppressions
        from django_lockstep.lab.output import require_writable
    with _refused():
        if path := config.getoption("--race-report"):
            require_report(path, option="--race-report")
        if path := config.getoption("--race-fix"):
            require_writable(path, option="--race-fix")
        return read_suppressions(config.rootpath, config.getoption("--race-baseline"))


def _require_processes(config: pytest.Config) -> None:
    number = config.getoption("--race-processes")
    if number < 1:
        raise ValueError(f"there must be at least 1, not {number}")
    cluster = config.getoption("--race-cluster")
    if number > 1 and cluster:
        raise ValueError(f"{number} try on this machine, and --race-cluster={cluster} elsewhere: name one")
    if (number > 1 or cluster) and config.getoption("--race-confirm") and not config.getoption("--race-share"):
        raise ValueError("several try candidates after --find-races only; --race-confirm goes on in one")


def recording_path(config: pytest.Config) -> Path:
    """Return where the recording of this run is kept."""
    path: Path | None = config.getoption("--race-record")
    if path is not None:
        return path.absolute()
    cache = getattr(config, "cache", None)
    return (cache.mkdir("races") if cache is not None else Path(tempfile.mkdtemp(prefix="races-"))) / _FILE


class _Recording:
    """Records the tests, itself or by the workers of pytest-xdist; then lists the candidates, and tries them."""

    def __init__(self, config: pytest.Config, suppressed: list[Suppression]) -> None:
        self._suppressed = suppressed
        self._findings: Findings | None = None
        self._recorder: Recorder | None = None
        of_worker = config.workerinput["find_races"] if hasattr(config, "workerinput") else None
        self.path = Path(of_worker["path"]) if of_worker else recording_path(config)
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
        from django_lockstep.lab.finder.record.fingerprints import Fingerprints
        from django_lockstep.lab.finder.record.recorder import Recorder
        from django_lockstep.lab.finder.record.recording import RecordingWriter
        from django_lockstep.lab.finder.record.stack import CodeMap

        code = CodeMap(session.config.rootpath)
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
            from django_lockstep.lab.finder.record.recording import merge_recordings

            merge_recordings(parts, self.path)
            self.is_recorded = True
        if not self.is_recorded:
            terminalreporter.write_line("NOTHING WAS LOOKED AT: no test was recorded")
        if not self.is_recorded or hasattr(config, "workerinput"):
            return
        from django_lockstep.lab.finder.findings import Findings, findings_path
        from django_lockstep.lab.finder.report.text import list_candidates, summary_of

        findings_path(self.path).unlink(missing_ok=True)  # on an earlier recording
        self._findings = Findings.on(self.path)
        # Also if the candidates are tried: then there is a report even if that ends early.
        report = _report(config, self._findings, self._suppressed)
        terminalreporter.section("what may race")
        terminalreporter.write_line(summary_of(report))
        if not budget_of(config):
            terminalreporter.write_line(list_candidates(report))
        terminalreporter.write_line(f"recording: {self.path}; --race-candidates lists them, --race-confirm tries them")

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
        from django_lockstep.lab.finder.report.races import NOTHING_TRIED
        from django_lockstep.lab.finder.report.text import as_text
        from django_lockstep.lab.finder.second_session import confirm_in_second_session

        if (findings := self._findings) is None:
            return NOTHING_TRIED
        status, budget = 0, budget_of(config)
        if budget and findings.candidates:
            processes, cluster = config.getoption("--race-processes"), config.getoption("--race-cluster")
            status = confirm_in_second_session(
                config, self.path, findings, budget=budget, processes=processes, cluster=cluster
            )
        # Written again: each of several sessions knows only what it has found itself.
        report = _report(config, findings, self._suppressed)
        if budget:
            config.get_terminal_writer().line(as_text(report))
        return status or report.exit_status


def _confirming(config: pytest.Config, path: Path, suppressed: list[Suppression]) -> ConfirmPlugin:
    """Return what turns the session into one that only tries candidates."""
    from django_lockstep.lab.finder.confirm.confirmation import Confirmation
    from django_lockstep.lab.finder.confirm_plugin import ConfirmPlugin
    from django_lockstep.lab.finder.findings import Findings

    with _refused("--race-confirm"):
        findings = Findings.on(path)
    if text := config.getoption("--race-share"):
        findings.go_on(text)
    else:
        findings.record_deaths()
    with _refused("--race-share"):
        only = Share.parse(findings.share).of(findings.candidates.values())
    confirmation = Confirmation(findings, budget=budget_of(config), only=only, values=config.getoption("--race-values"))
    return ConfirmPlugin(confirmation, partial(_report, config, findings, suppressed))


def _report(config: pytest.Config, findings: Findings, suppressed: list[Suppression], *, tried: bool = True) -> Report:
    """Return the report, with or without what was tried, and write it where one is asked for."""
    from django_lockstep.lab.finder.report.files import write_reports
    from django_lockstep.lab.finder.report.races import report_on

    report = report_on(findings, suppressed, root=config.rootpath, tried=tried)
    write_reports(report, config.getoption("--race-report"), config.getoption("--race-fix"))
    return report


def budget_of(config: pytest.Config) -> float:
    """Return the seconds of ``--race-budget``."""
    with _refused("--race-budget"):
        return parse_budget(config.getoption("--race-budget"))


def _test_id(item: pytest.Item) -> str:
    """Return the id that the test has without workers: pytest-xdist may append its groups with ``--dist loadgroup``."""
    marks = item.iter_markers("xdist_group")
    groups = {str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in marks}
    return item.nodeid.removesuffix(f"@{'_'.join(sorted(groups))}")


def name_files_by_equals_signs(config: pytest.Config) -> None:
    """Start pytest again if a file of the finder's, named with a blank before it, exists.

    pytest looks for the project's settings before it knows these options, and takes such a file for one with tests.
    Raises ``UsageError`` if another program has started pytest.
    """
    args = list(map(str, config.invocation_params.args))
    words = iter(args)
    joined = [f"{word}={next(words, '')}" if word in _FILES else word for word in words]
    if not any(option in _FILES and Path(file).exists() for option, file in pairwise(args)):
        return
    if sys.orig_argv[-len(args) :] != args:
        raise pytest.UsageError(f"{', '.join(_FILES)}: name files with an equals sign, or pytest takes them for tests")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : -len(args)], *joined])  # noqa: S606


def list_recording(config: pytest.Config) -> int | None:
    """List the candidates of the recording that ``--race-candidates`` names, and return the exit code."""
    path: Path | None = config.getoption("--race-candidates")
    if path is None:
        return None
    # Settings may be configured by a hook of the project's.
    config._do_configure()
    suppressed = _require_usable(config)
    from django_lockstep.lab.finder.findings import Findings
    from django_lockstep.lab.finder.report.text import list_candidates, summary_of

    with _refused("--race-candidates"):
        findings = Findings.on(path)
    report = _report(config, findings, suppressed, tried=False)
    sys.stdout.write(f"{summary_of(report)}\n{list_candidates(report)}\n")
    return report.exit_status
