"""The code of a race as pages show it before anything is run: in colours, each line with its place in the file."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from django_lockstep.lab.explorer.effects.operations import shown_path
from django_lockstep.lab.races import Race

_FORMATTER = HtmlFormatter(nowrap=True, classprefix="k-")
_MOST_FUNCTIONS = 5
"""Functions that are shown of an actor at most: those that it calls come after it."""
_LONGEST_VALUE = 60
"""Letters; a longer value of a closure says nothing on a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """A line of code."""

    place: str
    """File and line number, as in the steps of a schedule."""
    indentation: str
    """Tabs, so that the style sheet says how wide a level is."""
    html: SafeString
    """Its text in colours, without the indentation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCode:
    """A function, and what its variables from outside are here."""

    lines: tuple[CodeLine, ...]
    values: tuple[tuple[str, str], ...]
    """Variables of the functions around it, with their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceCode:
    """The code of a race."""

    actors: Mapping[tuple[str, ...], tuple[FunctionCode, ...]]
    """What one actor runs, or several, by their names."""
    shared: tuple[FunctionCode, ...]
    """What all actors call, where they differ."""
    invariant: tuple[FunctionCode, ...]


def race_code(race: Race) -> RaceCode:
    """Return what each actor runs, what all of them call, and what must hold; what has no source is left out."""
    actors: dict[tuple[FunctionCode, ...], list[str]] = {}
    for name, actor in race.scenario.actors.items():
        actors.setdefault(_code_of(actor), []).append(name)
    first, *others = actors
    shared = [code for code in first if others and all(code in functions for functions in others)]
    return RaceCode(
        actors={
            tuple(names): tuple(code for code in functions if code not in shared) for functions, names in actors.items()
        },
        shared=tuple(
            dict.fromkeys([*shared, *(code for function in race.code for code in _code_of(function, most=1))])
        ),
        invariant=_code_of(race.scenario.invariant, most=1),
    )


def _code_of(actor: object, *, most: int = _MOST_FUNCTIONS) -> tuple[FunctionCode, ...]:
    """Return the code of an actor and of the functions that it is made of, at most so many."""
    codes: list[FunctionCode] = []
    for function, variables in _functions_of(actor):
        if len(codes) == most:
            break
        values = [(name, repr(value)) for name, value in variables.items() if not callable(value)]
        # A longer value, or one with an address, says nothing.
        short = tuple((name, text) for name, text in values if len(text) <= _LONGEST_VALUE and " at 0x" not in text)
        try:
            lines = source_lines(function)
        except (OSError, TypeError):  # typed into a shell, or written in C
            continue
        codes.append(FunctionCode(lines=lines, values=short))
    return tuple(codes)


def _functions_of(actor: object) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the actor's own function, then those that it closes over or calls in its own module, nearest first.

    With each come the variables that it has from outside: of the functions around it, or the arguments of a partial.
    """
    pending: list[object] = [actor]
    seen = set()
    while pending:
        function = pending.pop(0)
        arguments: Mapping[str, Any] = {}
        function = inspect.unwrap(function) if callable(function) else function
        if isinstance(function, functools.partial):
            arguments = inspect.signature(function.func).bind_partial(*function.args, **function.keywords).arguments
            function = inspect.unwrap(function.func)
        function = getattr(function, "__func__", function)
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        names = inspect.getclosurevars(function)
        yield function, {**names.nonlocals, **arguments}
        pending += [*names.nonlocals.values(), *arguments.values()]
        functions = filter(inspect.isfunction, names.globals.values())
        pending += [value for value in functions if inspect.unwrap(value).__module__ == function.__module__]


@functools.cache
def source_lines(function: Callable[..., Any]) -> tuple[CodeLine, ...]:
    """Return the function's lines as they stand in its file, without the docstring. Raises ``OSError`` without one."""
    function = inspect.unwrap(function)
    path = Path(inspect.getfile(function))
    if not path.is_file():  # Python 3.13 takes the source of `python -c` for that of all code without a file
        raise OSError(f"{function.__qualname__} is in no file")
    place = shown_path(str(path))
    if function.__name__ == "<lambda>":
        body = [(number, f"{line}\n") for number, line in enumerate(_lambda_source(function, path))]
        first = function.__code__.co_firstlineno
    else:
        lines, first = inspect.getsourcelines(function)
        body = _without_docstring(lines)
    indent = len(body[0][1]) - len(body[0][1].lstrip())
    html = highlight("".join(line[indent:] for _, line in body), PythonLexer(stripnl=False), _FORMATTER)
    return tuple(
        CodeLine(
            place=f"{place}:{first + offset}",
            indentation="\t" * ((len(line) - len(line.lstrip()) - indent) // 4),
            # Pygments has escaped the code, and closes every element in its line. A long one may break before a dot.
            html=mark_safe(text.lstrip().replace('<span class="k-o">.', '<wbr><span class="k-o">.')),  # noqa: S308
        )
        for (offset, line), text in zip(body, html.splitlines(), strict=True)
    )


def _lambda_source(function: Any, path: Path) -> list[str]:
    """Return the lines of the lambda alone: of a line with several of them that one in which its code stands."""
    source = path.read_text(encoding="utf-8")
    places = {(line, column) for line, _, column, _ in function.__code__.co_positions() if line and column}
    lambdas = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda)]
    # The innermost lambda around every place of the code: an outer one begins earlier.
    around = [
        node
        for node in lambdas
        if all((node.lineno, node.col_offset) <= place < (node.end_lineno, node.end_col_offset) for place in places)
    ]
    if not around:
        raise OSError(f"{path} has changed since it was imported")
    innermost = max(around, key=lambda node: (node.lineno, node.col_offset))
    return dedent(ast.get_source_segment(source, innermost, padded=True) or "").splitlines()


def _without_docstring(lines: list[str]) -> list[tuple[int, str]]:
    """Return the lines of the function's source with their numbers, from 0."""
    (definition,) = ast.parse(dedent("".join(lines))).body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)  # noqa: S101 - the source of a function
    first = definition.body[0]
    documented = range(first.lineno - 1, first.end_lineno or 0) if ast.get_docstring(definition) else ()
    return [(number, line) for number, line in enumerate(lines) if number not in documented]
