"""Runs the benchmarks: select suites, measure, and print the results as a table, JSON or Markdown."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import django
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from benchmarks.suite import SUITES, Options, Section, Suite, load, select_names
from django_lockstep.lab.simulator.errors import SimulationError


def main(arguments: Sequence[str]) -> int:
    """Run suites; return 0, 1 if a contender that should be correct was not, 2 for wrong usage or no database."""
    settings = _parser().parse_args(arguments)
    try:
        options = Options(**{option.name: getattr(settings, option.name) for option in fields(Options)})
        django.setup()
        suites = _select_suites([load(name) for name in settings.suites], options)
        bound = sum(suite.seconds(options) for suite in suites)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's answer
        return 2
    say(f"This takes at most {bound / 60:.0f} min {bound % 60:.0f} s." if bound >= 60 else f"At most {bound:.0f} s.")
    try:
        return _run(suites, options, settings, command=shlex.join(["python", "-m", "benchmarks", *arguments]))
    except (DatabaseError, ImproperlyConfigured, SimulationError) as error:
        say(f"{type(error).__name__}: {error}")
        return 2


def _select_suites(suites: Sequence[Suite], options: Options) -> list[Suite]:
    """Return the suites that have names matching ``--only``. Raises ``ValueError`` where none has."""
    names = {name for suite in suites for name in suite.names()}
    selection = {*select_names(sorted(names), options.only)}
    return [suite for suite in suites if selection.intersection(suite.names())]


def say(line: str) -> None:
    """Print a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a command's progress


def _run(suites: Sequence[Suite], options: Options, settings: Namespace, *, command: str) -> int:
    # Imported here, because both need Django's settings.
    from benchmarks import render
    from benchmarks.database import describe_machine, scratch_database

    with scratch_database(durable=options.durable):
        machine = describe_machine()
        sections: list[Section] = [suite.run(options, say=say) for suite in suites]
    forms = {"table": render.as_text, "json": render.as_json, "markdown": render.as_markdown}
    text = forms[settings.format](sections, machine=machine, command=command)
    if settings.output is None:
        print(text)  # noqa: T201 - a command's answer
    else:
        settings.output.write_text(
            render.merge_parts(text, settings.output) if settings.format == "markdown" else text + "\n"
        )
    return 0 if all(section.sound for section in sections) else 1


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    defaults = Options()
    parser.add_argument(
        "suites", nargs="*", type=_suite, default=["deposit"], help=f"one or more of {', '.join(SUITES)}"
    )
    parser.add_argument("--rows", type=_numbers, default=defaults.rows, help="numbers of rows, such as 1,10,10000")
    parser.add_argument("--workers", type=_numbers, default=defaults.workers, help="numbers of clients: 1,8,32")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="how often everything is measured")
    parser.add_argument("--seconds", type=int, default=defaults.seconds, help="length of one measurement")
    parser.add_argument(
        "--durable", action=BooleanOptionalAction, default=True, help="whether COMMIT waits for the disk"
    )
    words = "patterns of names: 'strategy:*,account:*'"
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=(), help=words)
    parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
    parser.add_argument("--output", type=Path, help="a file; in Markdown only the parts of these suites are replaced")
    return parser


def _suite(text: str) -> str:
    if text not in SUITES:
        raise ArgumentTypeError(f"must be one of {', '.join(SUITES)}, not {text!r}")
    return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
