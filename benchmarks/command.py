"""One entry point for all benchmarks: what to measure, how long it takes at most, and the results in three forms."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

import django
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from benchmarks.suite import SUITES, Options, Section, Suite, chosen, load
from django_lockstep.lab.simulator.errors import SimulationError

__all__ = ["main", "options_of"]


def main(arguments: Sequence[str]) -> int:
    """Run suites; return 0, 1 where something that claims to be right was not, 2 for wrong usage or no database."""
    given = _parser().parse_args(arguments)
    try:
        options = options_of(given)
        django.setup()
        suites = _fitting([load(name) for name in given.suites], options)
        bound = sum(suite.seconds(options) for suite in suites)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's answer
        return 2
    say(f"This takes at most {bound / 60:.0f} min {bound % 60:.0f} s." if bound >= 60 else f"At most {bound:.0f} s.")
    try:
        return _run(suites, options, given, command=shlex.join(["python", "-m", "benchmarks", *arguments]))
    except (DatabaseError, ImproperlyConfigured, SimulationError) as error:
        say(f"{type(error).__name__}: {error}")
        return 2


def _fitting(suites: Sequence[Suite], options: Options) -> list[Suite]:
    """Return the suites that ``--only`` leaves something to do. Raises ``ValueError`` where that is none."""
    names = {name for suite in suites for name in suite.names()}
    wanted = {*chosen(sorted(names), options.only)}
    return [suite for suite in suites if wanted.intersection(suite.names())]


def say(line: str) -> None:
    """Tell of the progress."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a command's progress


def options_of(given: Namespace) -> Options:
    """Return the options. Raises ``ValueError`` for values that make no sense."""
    return Options(
        rows=given.rows,
        workers=given.workers,
        rounds=given.rounds,
        seconds=given.seconds,
        durable=given.durable == "on",
        flush_delay=given.flush_delay,
        only=given.only,
        repeat=given.repeat,
    )


def _run(suites: Sequence[Suite], options: Options, given: Namespace, *, command: str) -> int:
    # Only now: both need Django's settings.
    from benchmarks import render
    from benchmarks.database import described, scratch_database

    with scratch_database(durable=options.durable, flush_delay=options.flush_delay):
        machine = described()
        sections: list[Section] = [suite.run(options, say=say) for suite in suites]
    forms = {"table": render.as_text, "json": render.as_json, "markdown": render.as_markdown}
    text = forms[given.format](sections, machine=machine, command=command)
    if given.output is None:
        print(text)  # noqa: T201 - a command's answer
    else:
        given.output.write_text(render.merged(text, given.output) if given.format == "markdown" else text + "\n")
    return 0 if all(section.sound for section in sections) else 1


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    defaults = Options()
    parser.add_argument("suites", nargs="*", type=_suite, default=["deposit"], help=f"of {', '.join(SUITES)}")
    parser.add_argument("--rows", type=_numbers, default=defaults.rows, help="numbers of rows, such as 1,10,10000")
    parser.add_argument("--workers", type=_numbers, default=defaults.workers, help="numbers of clients: 1,8,32")
    parser.add_argument("--rounds", type=int, default=defaults.rounds, help="how often everything is measured")
    parser.add_argument("--seconds", type=int, default=defaults.seconds, help="length of one measurement")
    parser.add_argument("--durable", choices=["on", "off"], default="on", help="whether commits wait for the disk")
    parser.add_argument("--flush-delay", type=float, default=0.0, help="ms that each wait for the disk takes longer")
    parser.add_argument("--only", type=_words, default=(), help="patterns of contenders: 'strategy:*,account:*'")
    parser.add_argument("--repeat", type=int, default=1, help="explore the ready-made races so often, and compare")
    parser.add_argument("--format", choices=["table", "json", "markdown"], default="table")
    parser.add_argument("--output", type=Path, help="a file; of Markdown only the parts of these suites are replaced")
    return parser


def _suite(text: str) -> str:
    if text not in SUITES:
        raise ArgumentTypeError(f"there is no suite {text!r}, only {', '.join(SUITES)}")
    return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))
