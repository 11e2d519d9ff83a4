"""``manage.py simulate``: worker processes change shared accounts, with every strategy in turn."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn

from django.core.management.base import BaseCommand

if TYPE_CHECKING or find_spec("django_lockstep.lab"):
    from accounts.management.simulate import Command
else:

    class Command(BaseCommand):
        """Says what to install, whatever its arguments are."""

        help = "simulate needs the race lab: pip install 'django-lockstep-accounts[lab]'"

        def run_from_argv(self, argv: list[str]) -> NoReturn:
            # Not `handle`, which is called after the arguments were parsed.
            self.stderr.write(f"CommandError: {self.help}")
            sys.exit(2)
