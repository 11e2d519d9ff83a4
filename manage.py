#!/usr/bin/env python
"""Django's command-line entry point for the demo bank."""

import os
import sys


def main() -> None:
    """Run one management command of the bank."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bank.settings")
    if sys.argv[1:2] == ["runserver"]:
        # Only the development server is a development environment; every other command keeps the safe default.
        os.environ.setdefault("DJANGO_DEBUG", "1")
    if sys.argv[1:2] == ["demo"]:
        # In the environment, where the processes that run the races find it, too.
        os.environ.setdefault("BANK_DEMO", "1")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # what shells say of a program that Ctrl-C ended; a traceback would say no more
