"""The command that finds races in the project's own tests, for projects on Django's test runner."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_lockstep.lab.finder.budget import parse_budget
from django_lockstep.lab.finder.confirm.confirmation import Confirmation
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.progress import Progress
from django_lockstep.lab.finder.report.files import require_report, write_report
from django_lockstep.lab.finder.report.reports import Report, as_text, list_candidates, report_on, summary_of
from django_lockstep.lab.finder.report.suppressions import read_suppressions
from django_lockstep.lab.finder.runner import confirm_tests, record_tests


class Command(BaseCommand):
    """Finds races; a thin shell over `record_tests` and `confirm_tests`. With pytest: ``pytest --find-races``."""

    help = (
        "Run the project's tests once and record what they do; then run those of them again that show what may race, "
        "and race it there. Exit status: 0; 1 if a race is confirmed that pyproject.toml does not accept; 2 for wrong "
        "usage. Projects with pytest use `pytest --find-races`."
    )
    requires_system_checks = ()  # the test runner makes them

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("labels", nargs="*", help="tests to run, as `manage.py test` takes them")
        add("--budget", default="5m", help="time for trying candidates, such as 90s or 5m; 0 only lists them")
        add("--record", type=Path, metavar="FILE", help="where the recording is kept")
        add("--confirm", type=Path, metavar="FILE", help="try the candidates of this recording; no test is recorded")
        add("--report", type=Path, metavar="FILE", help="write a report: .txt, .json, .html, .sarif or .xml")
        add("--values", action="store_true", help="record parameters and rows as they are, and report them")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            budget = parse_budget(options["budget"])
            if options["report"]:
                require_report(options["report"], option="--report")
            status = self._search(budget, options)
        except (FinderError, ValueError, OSError) as error:
            raise CommandError(str(error), returncode=2) from error
        if status:
            raise SystemExit(status)

    def _search(self, budget: float, options: dict[str, Any]) -> int:
        path = options["confirm"] or options["record"] or Path(tempfile.mkdtemp(prefix="races-")) / "recording.jsonl"
        suppressed = read_suppressions(Path.cwd())  # refused now rather than after all tests
        if not options["confirm"]:
            self._record(path, options)
        found = Findings.on(path)
        report = partial(report_on, found, suppressed, root=Path.cwd())
        self.stdout.write(summary_of(report()))
        if not budget:
            self.stdout.write(list_candidates(self._write(report(), options)))
            return report().exit_status
        try:
            self._confirm(found, budget, options)
        finally:  # also of a search that is interrupted
            self._write(report(), options)
        self.stdout.write(as_text(report()))
        return report().exit_status

    def _record(self, path: Path, options: dict[str, Any]) -> None:
        key = None if options["values"] else os.urandom(16)
        findings_path(path).unlink(missing_ok=True)
        record_tests(options["labels"], path, key=key, root=Path.cwd(), verbosity=options["verbosity"])
        self.stdout.write(f"recording: {path}; --confirm tries its candidates")

    def _confirm(self, found: Findings, budget: float, options: dict[str, Any]) -> None:
        is_terminal = self.stdout.isatty()
        progress = Progress(found, self._print, budget=budget, is_terminal=is_terminal)
        confirmation = Confirmation(
            found, budget=budget, values=options["values"], on_finding=lambda finding: progress.update([finding])
        )
        progress.update([])
        # The dots of the tests would stand in the line that is rewritten.
        verbosity = 0 if is_terminal else options["verbosity"]
        confirm_tests(options["labels"], confirmation, verbosity=verbosity)
        progress.close()

    def _print(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()

    def _write(self, report: Report, options: dict[str, Any]) -> Report:
        if options["report"]:
            write_report(options["report"], report)
        return report
