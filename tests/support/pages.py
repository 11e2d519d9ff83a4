"""What a page of the documentation asks its reader to do, in the order of the page.

A block of code whose first line is a comment with a path is a file to write. A block ``console`` holds commands behind
``$`` with what they print: each line is a part of one that is printed, and a line ``...`` stands for any lines. All
other blocks are there to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(python|ini|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|ini))\n+")
_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class File:
    """A file to write."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run, and the lines that it prints, among others."""

    line: str
    output: tuple[str, ...]


def steps(text: str) -> Iterator[File | Command]:
    """Yield what the page, or a part of it, asks for."""
    for language, block in _BLOCK.findall(text):
        if language == "console":
            yield from _commands(block)
        elif named := _FILE.match(block):
            yield File(named[1], block[named.end() :])


def _commands(block: str) -> Iterator[Command]:
    _, *parts = _COMMAND.split(block)
    for line, printed in zip(parts[::2], parts[1::2], strict=True):
        output = (line.rstrip() for line in printed.splitlines())
        yield Command(line, tuple(line for line in output if line and line != "..."))


def missing(command: Command, printed: str) -> list[str]:
    """Return the lines that the command should have printed, in their order, and did not."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    return [part for part in command.output if not any(part in line for line in lines)]
