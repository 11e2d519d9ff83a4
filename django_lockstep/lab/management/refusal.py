"""Commands that need the extra ``lab``, where it is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_lockstep.lab.extras import missing_parser

__all__ = ["load_command"]


def load_command(module: str) -> type[BaseCommand]:
    """Return the module's command, or one that refuses to run if the explorer cannot be imported.

    Django reports no ``CommandError`` of a module that it imports: it would end in a traceback.
    """
    if reason := missing_parser():
        return _refuse(reason)
    command: type[BaseCommand] = import_module(module).Command
    return command


def _refuse(reason: str) -> type[BaseCommand]:
    class Refusal(BaseCommand):
        """Says what to install, whatever its arguments are."""

        def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
            raise CommandError(reason, returncode=2)

        def run_from_argv(self, argv: list[str]) -> NoReturn:
            self.stderr.write(f"CommandError: {reason}")
            raise SystemExit(2)

        def print_help(self, prog_name: str, subcommand: str) -> None:
            self.stdout.write(reason)

    return Refusal
