"""``manage.py lock_report``: prints which sessions wait for which others right now."""

import math
import shutil
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import suppress
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, OperationalError
from django.utils.connection import ConnectionDoesNotExist

from django_lockstep.monitor import LockReport, as_json, lock_report, text

_CLEAR = "\033[H\033[2J"


class Command(BaseCommand):
    """Exit status: 0, whether a session waits or not; 1 if the database does not answer; 2 for wrong usage."""

    help = "Print which sessions wait for which locks: model, primary key, statement, how long, and the holders."
    # The command is for emergencies, and does not depend on what the checks check.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        watch = "repeat every SECONDS (default: 2) until Ctrl-C"
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("--watch", nargs="?", const=2.0, type=_interval, metavar="SECONDS", help=watch)
        parser.add_argument(
            "--format",
            choices=["text", "json"],
            default="text",
            help="json prints one report per line (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        watched = options["watch"] is not None
        with suppress(KeyboardInterrupt):
            while True:
                report = _report(options["database"])
                if options["format"] == "json":
                    self.stdout.write(as_json(report))
                else:
                    self._print(report, afresh=watched and self.stdout.isatty())
                self.stdout.flush()
                if not watched:
                    return
                sleep(options["watch"])

    def _print(self, report: LockReport, *, afresh: bool) -> None:
        """Print the text; ``afresh``: on a cleared screen, and only what fits, as the first lines matter most."""
        columns, rows = shutil.get_terminal_size((100, 24))
        headline, *lines = text(report, width=columns).splitlines()
        if afresh:
            self.stdout.write(_CLEAR, ending="")
            lines = _fitting(lines, rows=rows - 2)
        self.stdout.write(headline, self.style.WARNING if report.waits else self.style.SUCCESS)
        self.stdout.write("".join(f"{line}\n" for line in lines), ending="")


def _report(using: str) -> LockReport:
    try:
        return lock_report(using)
    except (NotSupportedError, ConnectionDoesNotExist) as error:
        raise CommandError(str(error), returncode=2) from error
    except OperationalError as error:
        raise CommandError(f"Database {using!r} does not answer: {error}") from error


def _fitting(lines: list[str], *, rows: int) -> list[str]:
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], f"... and {len(lines) - rows + 1} more lines, which are shown without --watch"]


def _interval(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise ArgumentTypeError(f"must be a positive number of seconds, not {value!r}")
    return seconds
