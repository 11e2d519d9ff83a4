"""``manage.py lock_report``: prints which sessions wait for which others right now."""

import shutil
from argparse import ArgumentParser
from contextlib import suppress
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, OperationalError
from django.utils.connection import ConnectionDoesNotExist

from django_lockstep.locking.durations import seconds
from django_lockstep.monitor import LockReport, as_json, lock_report, text


class Command(BaseCommand):
    """Exit status: 0, whether a session waits or not; 1 if the database does not answer; 2 for wrong usage."""

    help = "Print which sessions wait for which locks: model, primary key, statement, how long, and the holders."
    # The command is for emergencies, and does not depend on what the checks check.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        watch = "repeat every SECONDS (default: 2) until Ctrl-C"
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("--watch", nargs="?", const=2.0, type=float, metavar="SECONDS", help=watch)
        parser.add_argument(
            "--format",
            choices=["text", "json"],
            default="text",
            help="json prints one report per line (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            pause = None if options["watch"] is None else seconds(options["watch"], name="--watch")
        except ValueError as error:
            raise CommandError(str(error), returncode=2) from error
        with suppress(KeyboardInterrupt):
            while True:
                report = _report(options["database"])
                if options["format"] == "json":
                    self.stdout.write(as_json(report))
                else:
                    self._print(report)
                self.stdout.flush()
                if pause is None:
                    return
                sleep(pause)

    def _print(self, report: LockReport) -> None:
        # The first line is a summary.
        headline, *lines = text(report, width=shutil.get_terminal_size((100, 24)).columns).splitlines()
        self.stdout.write(headline, self.style.WARNING if report.waits else self.style.SUCCESS)
        self.stdout.write("".join(f"{line}\n" for line in lines), ending="")


def _report(using: str) -> LockReport:
    try:
        return lock_report(using)
    except (NotSupportedError, ConnectionDoesNotExist) as error:
        raise CommandError(str(error), returncode=2) from error
    except OperationalError as error:
        raise CommandError(f"Database {using!r} does not answer: {error}") from error
