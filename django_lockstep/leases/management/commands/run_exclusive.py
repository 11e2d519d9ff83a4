"""``manage.py run_exclusive``: runs a command under a lease."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.leases import LeaseNotAcquired, lease
from django_lockstep.leases.jobs import Job, forwarded_signals

_HELD = 75
"""EX_TEMPFAIL of sysexits.h: try again later."""
_LOST = 70
"""EX_SOFTWARE of sysexits.h."""


class Command(BaseCommand):
    """Exit with the command's code; 75 where the lease is held, 70 where it was lost, 2 on wrong usage."""

    help = (
        "Runs a command while it holds the lease KEY, on all servers at most once at a time. Exits with the command's "
        "code (128 + N if signal N ended it), with 75 if somebody else holds the lease, and with 70 if the lease was "
        "lost: then the command gets SIGTERM, and SIGKILL after --grace."
    )
    # Whoever starts it every minute does not want the project examined every minute.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the key, the durations and the command."""
        parser.add_argument("key", metavar="KEY")
        parser.add_argument("--ttl", type=_seconds, required=True, help="seconds after which a dead holder loses it")
        parser.add_argument("--wait", type=_seconds, default=0.0, help="seconds to wait for it (default: 0)")
        parser.add_argument(
            "--at-least", type=_seconds, help="seconds for which it stays taken, however early the command ends"
        )
        parser.add_argument("--grace", type=_seconds, default=10.0, help="seconds from TERM to KILL (default: 10)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        """Hold the lease, run the command, and exit as it did."""
        job = Job(options["command"], grace=options["grace"])
        lost: list[str] = []

        def end(handle: Any) -> None:
            lost.append(handle.key)
            job.kill()

        try:
            with self._lease(options, on_lost=end), forwarded_signals(job):
                connections[options["database"]].close()  # the command may run for hours
                code = job.run()
        except LeaseNotAcquired as refusal:
            raise CommandError(str(refusal), returncode=_HELD) from refusal
        if lost:
            raise CommandError(f"Lease {lost[0]!r} was lost, and the command was ended.", returncode=_LOST)
        sys.exit(code)

    def _lease(self, options: dict[str, Any], *, on_lost: Any) -> lease:
        try:
            return lease(
                options["key"],
                options["ttl"],
                wait=options["wait"],
                at_least=options["at_least"],
                data={"command": options["command"]},
                heartbeat=True,
                on_lost=on_lost,
                using=options["database"],
            )
        except (TypeError, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise ArgumentTypeError(f"{value!r} is no number of seconds") from error
