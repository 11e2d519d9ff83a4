"""The commands in the documentation exist, with the options that are given, and those that are quick do run."""

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from io import StringIO
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class

from benchmarks import command as benchmarks
from django_lockstep.lab.races import named_races
from tests.support.factories import UserFactory
from tests.support.pages import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "accounts/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
QUICK = {
    "anomalies --anomaly P4 --level 'repeatable read' --output anomalies.txt",
    "check",
    "check --database default",
    "explore --list",
    "explore anomaly:G2-item:repeatable-read",
    "explore child-insert:for-update child-insert:no-key",
    "explore lost-update:naive",
    "explore lost-update:naive --schedule ABBBAA --format svg --output lost-update.svg",
    "explore lost-update:naive --spec lost-update.spec",
    "lock_report",
    "makemigrations --check",
    "purge_check_outs",
    "reconcile",
}
"""Commands of Django that change nothing here, and end within a few seconds."""
OF_PACKAGES = {"export_schema": "strawberry_django"}
"""Commands of packages that are not among the demo's apps."""

_BLOCK = re.compile(r"^ *```([^`\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"\s+#.*$", re.MULTILINE)
_PROGRAM = re.compile(r"(?<![^\s/(])(manage\.py|django-admin|-m benchmarks|pytest)(?!\S)")
_OPTION = re.compile(r"(?<!\S)\[?(--[\w-]+)")
_END = "();<>&\n"  # not |, which a synopsis has between choices


def shell_blocks(page: str) -> Iterator[str]:
    """Yield what is to be typed into a shell; in blocks with output, these are the lines behind ``$``."""
    for language, block in _BLOCK.findall(page):
        if language in {"sh", "console"}:
            typed = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
            yield _COMMENT.sub("", "\n".join(typed) or block).replace("\\\n", " ")


def commands(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the programs in a text with their arguments."""
    for program in _PROGRAM.finditer(text):
        words = shlex.shlex(text[program.end() :], posix=True, punctuation_chars=_END)
        words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
        yield program[1], tuple(takewhile(lambda word: not word or not set(word) <= set(_END), words))


def all_commands() -> Iterator[Any]:
    """Yield the commands of all pages, and whether each is complete: neither inline code nor a synopsis."""
    for path in PAGES:
        page = path.read_text("utf-8")
        inline = (code.replace("\n", " ") for code in _INLINE.findall(_BLOCK.sub("", page)))
        for text, is_block in [*((block, True) for block in shell_blocks(page)), *((code, False) for code in inline)]:
            for program, words in commands(text):
                is_complete = is_block and not any(word.startswith("[-") for word in words)
                name = f"{path.relative_to(ROOT)}: {program} {shlex.join(words)}"
                yield pytest.param(program, words, is_complete, id=name)


def parser_of(program: str, words: tuple[str, ...], config: pytest.Config) -> tuple[ArgumentParser, list[str]]:
    """Return what parses the program's arguments, and these."""
    if program == "pytest":
        return config._parser.optparser, list(words)
    if program == "-m benchmarks":
        return benchmarks._parser(), list(words)
    name, *rest = words
    app = OF_PACKAGES.get(name) or get_commands()[name]
    return load_command_class(app, name).create_parser(program, name), rest


def options_of(parser: ArgumentParser) -> set[str]:
    """Return all options of a parser, those of its subcommands too."""
    commands = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    return {*parser._option_string_actions}.union(
        *(options_of(child) for group in commands for child in group.values())
    )


@pytest.mark.parametrize(("program", "words", "is_complete"), list(all_commands()))
def test_it_exists_with_its_options(
    program: str, words: tuple[str, ...], is_complete: bool, pytestconfig: pytest.Config
) -> None:
    if program != "pytest" and not words:  # only named
        return
    if words and (package := OF_PACKAGES.get(words[0])):
        pytest.importorskip(package, reason=f"{package} is not installed")
    parser, arguments = parser_of(program, words, pytestconfig)

    if is_complete:
        parser.parse_args(arguments)
    else:
        assert {option for word in arguments for option in _OPTION.findall(word)} <= options_of(parser)


def test_scenarios_to_explore_are_registered() -> None:
    explored = {word for param in all_commands() for word in param.values[1][1:] if param.values[1][0] == "explore"}

    assert {word for word in explored if ":" in word and "://" not in word} <= named_races().keys()


def quick() -> list[tuple[str, ...]]:
    """Return the commands to run: in the order of their pages, each once."""
    params = (param.values for param in all_commands())
    unique = dict.fromkeys(words for program, words, _ in params if program in {"manage.py", "django-admin"})
    return [words for words in unique if shlex.join(words) in QUICK]


def test_all_that_are_quick_are_still_there() -> None:
    assert {shlex.join(words) for words in quick()} == QUICK


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("words", quick(), ids=shlex.join)
def test_it_runs(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    UserFactory.create(username="ada")

    call_command(*words, stdout=StringIO(), stderr=StringIO())
