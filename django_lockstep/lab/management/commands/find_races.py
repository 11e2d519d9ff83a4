"""The command that finds races in the project's own tests, under whichever class it has chosen as test runner."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import tempfile
import unittest
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.test.runner import iter_test_cases  # type: ignore[attr-defined]
from django.test.utils import get_runner

from django_lockstep.lab.finder.confirm.committed import committed_tests
from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.confirm.witnesses import TestPlace
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.recorder import Recorder
from django_lockstep.lab.finder.record.recording import RecordingWriter
from django_lockstep.lab.finder.record.stack import CodeMap
from django_lockstep.lab.finder.report.files import require_report, write_reports
from django_lockstep.lab.finder.report.races import NOT_DECIDED, NOTHING_TRIED, Report, read_suppressions
from django_lockstep.lab.finder.report.text import as_text, list_candidates, summary_of
from django_lockstep.lab.finder.sessions import Progress, Session, run_sessions
from django_lockstep.lab.finder.shares import Share, parse_budget
from django_lockstep.lab.output import require_writable

_INTERRUPTED = 130
"""Exit status of a search that Ctrl-C ended, as shells have it."""


class Command(BaseCommand):
    """Finds races; a thin shell over `record_tests` and `confirm_tests`. With pytest: ``pytest --find-races``."""

    help = (
        "Run the project's tests once and record what they do; then run those of them again that show what may race, "
        "and race it there. Exit status: 0; 1 if a race is confirmed that pyproject.toml does not accept; 2 for wrong "
        "usage; 4 if nothing was looked at; 5 if not all was; 130 if it was interrupted. Projects with pytest use "
        "`pytest --find-races`."
    )
    requires_system_checks = ()  # the test runner makes them
    _argv: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Keep the command line: processes that try a share are started by it, too."""
        self._argv = argv[1:]
        super().run_from_argv(argv)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("labels", nargs="*", help="tests to run, as `manage.py test` takes them")
        add("--budget", default="5m", help="time for trying candidates, such as 90s or 5m; 0 only lists them")
        add("--processes", type=int, default=1, metavar="N", help="processes that try, each with its test databases")
        add("--share", help=SUPPRESS)  # what one of them has to try
        add("--record", type=Path, metavar="FILE", help="where the recording is kept")
        add("--confirm", type=Path, metavar="FILE", help="try the candidates of this recording; no test is recorded")
        add("--report", type=Path, metavar="FILE", help="write a report: .txt, .json, .html, .sarif or .xml")
        add("--fix", type=Path, metavar="FILE", help="write the first change that was tried and helps, for git apply")
        add("--baseline", type=Path, metavar="FILE", help="an earlier report (.json); what it confirms is accepted")
        add("--values", action="store_true", help="record parameters and rows as they are, and report them")
        own = {action.dest for action in parser._actions}
        runner = get_runner(settings)
        if hasattr(runner, "add_arguments"):
            runner.add_arguments(parser)
        # Of the project's test runner: --keepdb, -k, --tag, --exclude-tag, and whatever else it takes.
        self._runner_options = {action.dest for action in parser._actions} - own

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            budget = parse_budget(options["budget"])
            if options["share"]:
                status = self._try_share(budget, options)
            else:
                if options["report"]:
                    require_report(options["report"], option="--report")
                if options["fix"]:
                    require_writable(options["fix"], option="--fix")
                self._require_processes(budget, options)
                status = self._search(budget, options)
        except (FinderError, ValueError, OSError) as error:
            raise CommandError(str(error), returncode=2) from error
        if status:
            # `explore` ends with 1 to 3
            raise SystemExit({NOTHING_TRIED: 4, NOT_DECIDED: 5}.get(status, status))

    def _require_processes(self, budget: float, options: dict[str, Any]) -> None:
        number = options["processes"]
        if number < 1:
            raise ValueError(f"--processes: there must be at least 1, not {number}")
        if number > 1 and options["confirm"]:
            raise ValueError(f"--processes: {number} try candidates of a new recording only; --confirm goes on in one")
        if budget and not self._argv:
            raise ValueError(
                "--budget: processes that try are started from the command line only, not by call_command()"
            )

    def _search(self, budget: float, options: dict[str, Any]) -> int:
        path = options["confirm"] or options["record"] or Path(tempfile.mkdtemp(prefix="races-")) / "recording.jsonl"
        # Refused now rather than after all tests.
        suppressed = read_suppressions(Path.cwd(), options["baseline"])
        if not options["confirm"]:
            key = None if options["values"] else os.urandom(16)
            findings_path(path).unlink(missing_ok=True)
            record_tests(options["labels"], path, key=key, **self._for_runner(options))
            self.stdout.write(f"recording: {path}; --confirm tries its candidates")
        findings = Findings.on(path)

        def write() -> Report:
            report = Report(findings, suppressed, root=Path.cwd())
            write_reports(report, options["report"], options["fix"])
            return report

        result, status = write(), 0
        self.stdout.write(summary_of(result))
        if budget and findings.candidates:
            try:
                status = self._confirm(path, findings, budget=budget, processes=options["processes"])
            finally:  # also of a search that fails
                result = write()
        self.stdout.write(as_text(result) if budget else list_candidates(result))
        return status or result.exit_status

    def _confirm(self, path: Path, findings: Findings, *, budget: float, processes: int) -> int:
        """Have processes try a share each, and return the exit status: 0 if all came to their end."""
        findings.record_deaths()
        findings.mark_running("")  # an earlier search has used up a budget of its own
        started = sys.orig_argv[-len(self._argv) :] == self._argv
        # manage.py does what the project needs, unless another program has called it.
        program = sys.orig_argv[1 : -len(self._argv)] if started else ["-m", "django"]
        name, *words = self._argv

        def start() -> Iterator[Session]:
            for number in range(1, processes + 1):
                share = Share(number, processes)
                # Before the other words, among which may be `--`.
                command = [sys.executable, *program, name, f"--confirm={path}", f"--share={share}", *words]
                yield Session(command, path, share=share)

        def show(text: str) -> None:
            self.stdout.write(text, ending="")
            self.stdout.flush()

        progress = Progress(findings=findings, write=show, budget=budget, is_terminal=self.stdout.isatty())
        option = f"--confirm={path}"
        return run_sessions(start(), progress, completed=(0,), interrupted=_INTERRUPTED, option=option)

    def _try_share(self, budget: float, options: dict[str, Any]) -> int:
        """Try the candidates of the share, and return the exit status: 0 if that came to its end."""
        findings = Findings.on(options["confirm"])
        share = Share.parse(options["share"])
        findings.go_on(str(share))
        share.separate_test_databases()
        confirmation = Confirmation(findings, budget=budget, values=options["values"])
        # An earlier process that died has left its test database.
        runner = {**self._for_runner(options), "interactive": False}
        try:
            confirm_tests(options["labels"], confirmation, **runner)
        except KeyboardInterrupt:
            return _INTERRUPTED
        return 0

    def _for_runner(self, options: dict[str, Any]) -> dict[str, Any]:
        return {name: options[name] for name in ("verbosity", *self._runner_options) if name in options}


_Around = Callable[[unittest.TestSuite], AbstractContextManager[unittest.TestSuite]]
_Body = Callable[[unittest.TestCase], AbstractContextManager[None]]


def record_tests(labels: Sequence[str], path: Path, *, key: bytes | None, **options: Any) -> int:
    """Run the tests with these labels and record what they do; return how many failed."""
    code = CodeMap()
    recorder = Recorder(RecordingWriter(path), code=code, fingerprints=Fingerprints(key))

    @contextmanager
    def around(suite: unittest.TestSuite) -> Iterator[unittest.TestSuite]:
        for test in iter_test_cases(suite):
            code.add_test_file(Path(inspect.getfile(type(test))))
        with recorder.installed():
            yield suite

    @contextmanager
    def body(test: unittest.TestCase) -> Iterator[None]:
        recorder.begin_test(test.id())
        try:
            yield
        finally:
            recorder.end_test()

    return _run(labels, around=around, body=body, **options)


def confirm_tests(labels: Sequence[str], confirmation: Confirmation, **options: Any) -> None:
    """Try candidates in those of the tests with these labels that show one.

    A first Ctrl-C ends it after the try in hand, and raises ``KeyboardInterrupt`` when the test databases are dropped.
    """
    is_interrupted = False

    def stop(number: int, frame: object) -> None:
        # An error in the middle of a try would become the outcome of an actor, or of the test.
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        confirmation.budget = 0.0  # no further try, and no further test

    @contextmanager
    def around(suite: unittest.TestSuite) -> Iterator[unittest.TestSuite]:
        chosen = confirmation.choose(iter_test_cases(suite), unittest.TestCase.id)
        with committed_tests():
            rounds = chain.from_iterable(confirmation.rounds(chosen, unittest.TestCase.id))
            yield _Rounds(test for test in rounds if confirmation.is_wanted(test.id()))
        if not is_interrupted:
            confirmation.close()

    @contextmanager
    def body(test: unittest.TestCase) -> Iterator[None]:
        confirmation.mark_running(test.id())
        try:
            with confirmation.running(test.id(), TestPlace.of_case(test)):
                yield
        finally:
            confirmation.mark_running("")

    _run(labels, around=around, body=body, on_interrupt=stop, **options)
    if is_interrupted:
        raise KeyboardInterrupt


class _Rounds(unittest.TestSuite):
    """Runs tests of which each is known only when the last one is over."""

    _cleanup = False  # a test that was run may be needed again

    def __init__(self, tests: Iterator[unittest.TestCase]) -> None:
        super().__init__()
        self._rest = tests

    def __iter__(self) -> Iterator[unittest.TestCase]:
        return self._rest


def _run(
    labels: Sequence[str],
    *,
    around: _Around,
    body: _Body,
    on_interrupt: Callable[[int, object], None] | None = None,
    **options: Any,
) -> int:
    """Run the project's tests by its runner: with ``around`` about all of them, and ``body`` about each."""
    chosen: Any = get_runner(settings)
    original = unittest.TestCase.run

    def run(test: unittest.TestCase, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        # Called when Django has made the test's fixtures.
        with body(test):
            return original(test, result)

    class Runner(chosen):  # type: ignore[misc]
        def setup_test_environment(self, **kwargs: Any) -> None:
            super().setup_test_environment(**kwargs)
            if on_interrupt is not None:
                # In place of unittest's handler, which forgets an interrupt before the first test, and does not end
                # the tries of a test. The environment's end puts back what was there before.
                signal.signal(signal.SIGINT, on_interrupt)

        def run_suite(self, suite: unittest.TestSuite, **kwargs: Any) -> Any:
            with around(suite) as changed, mock.patch.object(unittest.TestCase, "run", run):
                return super().run_suite(changed, **kwargs)

    # One process: others would record into files of their own.
    return int(Runner(**{**options, "parallel": 0}).run_tests(list(labels)))
