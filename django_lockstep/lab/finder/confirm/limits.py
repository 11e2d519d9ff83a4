"""Limits that a test stays far away from: the number that a count is compared with, lowered while a fork is explored.

The number is a constant of a module or a class, or a setting. It is found on the stack when the count is sent: in the
comparison on that line, or in one of the variable that the line assigns.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import django
from django.conf import settings
from django.test import override_settings

from django_lockstep.lab.finder.confirm.forks import Actor, answer_alone
from django_lockstep.lab.finder.confirm.row_updates import is_on
from django_lockstep.lab.finder.errors import CannotClone
from django_lockstep.lab.wording import gettext as _

_COUNT = re.compile(r"SELECT COUNT\(", re.IGNORECASE)
_DJANGO = str(Path(django.__file__).parent)
_LAB = str(Path(__file__).parents[2])


@dataclass(frozen=True, slots=True)
class Limit:
    """A number with which a count was compared."""

    owner: Any
    """The module, class or settings whose attribute it is."""
    name: str
    number: int
    count: int
    """What was counted."""

    def __str__(self) -> str:
        return f"{self.name} is {self.count + 1}, not {self.number}"

    def lowered(self) -> AbstractContextManager[Any]:
        """Have it be one more than was counted, for the length of a block: one more row is allowed, and no second."""
        if self.owner is settings:
            return override_settings(**{self.name: self.count + 1})
        return patch.object(self.owner, self.name, self.count + 1)


def find_limit(actor: Actor) -> Limit:
    """Send the request, or make the call, and return the first limit that is farther away than one.

    What it writes stays there, and its errors are raised. Raises `CannotClone` if it compares no count with one.
    """
    limits: list[Limit] = []

    def note(sql: Any, params: Any, many: bool, context: Any) -> None:
        answer = getattr(context["cursor"].cursor, "pgresult", None)
        if _COUNT.match(str(sql)) and answer is not None and answer.ntuples == 1:
            limits.extend(_limits(sys._getframe(1), int(answer.get_value(0, 0))))

    answer_alone(actor, note)
    if not limits:
        raise CannotClone(
            _("what is counted is compared with no larger constant or setting: have it count up to one below the limit")
        )
    return limits[0]


def _limits(frame: FrameType | None, count: int) -> Iterator[Limit]:
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_DJANGO, _LAB)):
            for operand in _compared(frame):
                limit = _constant(operand, frame, count)
                # One more than is counted is what it would be lowered to.
                if limit is not None and limit.number > count + 1:
                    yield limit
        frame = frame.f_back


def _compared(frame: FrameType) -> Iterator[ast.expr]:
    """Yield what the value of the frame's line is compared with in its function."""
    try:
        lines, first = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):  # no file, or not a statement by itself, such as a lambda in a call
        return
    line = frame.f_lineno - first + 1
    here = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt) and is_on(node, line)]
    assigned = {
        target.id
        for node in here
        if isinstance(node, ast.Assign | ast.NamedExpr)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for comparison in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
        operands = [comparison.left, *comparison.comparators]
        is_of_variable = any(isinstance(operand, ast.Name) and operand.id in assigned for operand in operands)
        if comparison in here or is_of_variable:
            yield from operands


def _constant(operand: ast.expr, frame: FrameType, count: int) -> Limit | None:
    """Return the operand as a limit; None unless it is an integer of a module, a class or the settings."""
    owner: Any = None
    name = ""
    if isinstance(operand, ast.Name) and operand.id not in frame.f_locals:
        owner, name = sys.modules.get(frame.f_globals.get("__name__", "")), operand.id
    elif isinstance(operand, ast.Attribute) and isinstance(operand.value, ast.Name):
        value = frame.f_locals.get(operand.value.id, frame.f_globals.get(operand.value.id))
        is_shared = isinstance(value, type | ModuleType) or value is settings
        owner, name = value if is_shared else type(value), operand.attr
    # By the type: True is an integer, too.
    number = getattr(owner, name, None) if owner is not None else None
    return Limit(owner, name, number, count) if type(number) is int else None
