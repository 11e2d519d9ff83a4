"""``manage.py run_exclusive``: runs a command under a lease."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError

from django_lockstep.leases import lease
from django_lockstep.leases.database import DatabaseLeases
from django_lockstep.leases.jobs import Interrupted, Job, forward_signals
from django_lockstep.leases.stores import find_store
from django_lockstep.stores.errors import StoreError
from django_lockstep.stores.terms import new_owner

_NO_DATABASE = 69
"""EX_UNAVAILABLE of sysexits.h; a store cannot be reached either."""
_LOST = 70
"""EX_SOFTWARE of sysexits.h."""


class Command(BaseCommand):
    """Exit with the command's code; 75 if the lease is held, 70 if it was lost, 69 without a database.

    2 on wrong usage, 128 + N if signal N arrived before the command started.
    """

    help = (
        "Runs a command while holding the lease KEY: at most once at a time on all servers. Exits with the command's "
        "code (128 + N if signal N ended it), with 75 if another holder has the lease, with 69 if the database cannot "
        "be reached, and with 70 if the lease was lost: then it gets SIGTERM, and SIGKILL after --grace; so do "
        "processes that it leaves behind when it ends."
    )
    # Started every minute by cron, it should not check the whole project every minute.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", metavar="KEY")
        parser.add_argument("--ttl", type=float, required=True, help="seconds until the lease of a dead holder expires")
        parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for the lease (default: 0)")
        parser.add_argument(
            "--at-least", type=float, help="seconds for which the lease stays taken even if the command ends earlier"
        )
        parser.add_argument("--grace", type=float, default=10.0, help="seconds from TERM to KILL (default: 10)")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="database alias (default: default)")
        parser.add_argument("--store", help="a store of LOCKSTEP_STORES, instead of a database")
        parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --, with its arguments")

    def handle(self, *args: object, **options: Any) -> None:
        try:
            store = find_store(options["store"], using=options["database"])
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=2) from error
        job, owner = Job(options["command"], grace=options["grace"]), new_owner()
        lost: list[str] = []

        def end(handle: Any) -> None:
            lost.append(handle.key)
            job.kill()

        # Signal handlers cover the acquire and the release: no signal can end this process while it holds the lease.
        with forward_signals(job):
            try:
                with self._lease(options, owner=owner, on_lost=end) as handle:
                    # Only inside the block: a signal during the wait interrupts it instead of being forwarded.
                    job.allow()
                    store.close()  # the command may run for hours
                    code = job.run(LOCKSTEP_LEASE_KEY=handle.key, LOCKSTEP_LEASE_TOKEN=str(handle.token))
            except (OperationalError, InterfaceError) as error:
                kind = "database" if isinstance(store, DatabaseLeases) else "store"
                raise CommandError(f"The {kind} cannot be reached: {error}", returncode=_NO_DATABASE) from error
            except StoreError as error:
                raise CommandError(str(error), returncode=_NO_DATABASE) from error
            except ImproperlyConfigured as error:
                raise CommandError(str(error), returncode=2) from error
            except Interrupted as interruption:
                store.abandon(options["key"], owner)
                code = 128 + interruption.number
        if lost:
            raise CommandError(f"Lease {lost[0]!r} was lost, and the command was ended.", returncode=_LOST)
        sys.exit(code)

    def _lease(self, options: dict[str, Any], *, owner: str, on_lost: Any) -> lease:
        program, *arguments = options["command"]
        try:
            return lease(
                options["key"],
                options["ttl"],
                owner=owner,
                wait=options["wait"],
                at_least=options["at_least"],
                # Others see the program; its arguments may be passwords.
                data={"command": [program, *("***" for _ in arguments)]},
                heartbeat=True,
                on_lost=on_lost,
                using=None if options["store"] else options["database"],
                store=options["store"],
            )
        except (TypeError, ValueError) as error:
            raise CommandError(str(error), returncode=2) from error
