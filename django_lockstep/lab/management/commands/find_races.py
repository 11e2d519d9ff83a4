"""The command that finds races in the project's own tests, for projects on Django's test runner."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_lockstep.lab.finder.budget import parse_budget
from django_lockstep.lab.finder.candidates import Candidate
from django_lockstep.lab.finder.derive import find_candidates
from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.files import read_recording
from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.report import as_text, count_candidates, list_candidates, status_of
from django_lockstep.lab.finder.runner import confirm_tests, record_tests
from django_lockstep.lab.finder.suppressions import read_suppressions
from django_lockstep.lab.management.output import require_writable


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
        add("--report", type=Path, metavar="FILE", help="write a report, in the format of the ending")
        add("--values", action="store_true", help="record parameters and rows as they are")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            budget = parse_budget(options["budget"])
            if options["report"]:
                require_writable(options["report"], option="--report")
            suppressed = read_suppressions(Path.cwd())
            path = options["confirm"] or self._record(options)
            candidates = find_candidates(recording := read_recording(path))
            self.stdout.write(count_candidates(recording, candidates))
            found = self._confirm(candidates, path, budget, options)
        except (FinderError, ValueError, OSError) as error:
            raise CommandError(str(error), returncode=2) from error
        if status := status_of(found, suppressed):
            raise SystemExit(status)

    def _record(self, options: dict[str, Any]) -> Path:
        path: Path = options["record"] or Path(tempfile.mkdtemp(prefix="races-")) / "recording.jsonl"
        key = None if options["values"] else os.urandom(16)
        record_tests(options["labels"], path, key=key, root=Path.cwd(), verbosity=options["verbosity"])
        findings_path(path).unlink(missing_ok=True)
        self.stdout.write(f"recording: {path}; --confirm tries its candidates")
        return path

    def _confirm(self, candidates: list[Candidate], path: Path, budget: float, options: dict[str, Any]) -> Findings:
        found = Findings(findings_path(path), candidates)
        if budget:
            confirm_tests(options["labels"], candidates, found, budget=budget, verbosity=options["verbosity"])
        self.stdout.write(as_text(found) if budget else list_candidates(candidates))
        return found
