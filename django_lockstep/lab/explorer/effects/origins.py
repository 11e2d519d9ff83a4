"""Lines of the user's code that sent a statement or raised an error."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import asgiref
import django
import psycopg

__all__ = ["Origin", "line_of", "raised_at", "sent_from"]

Origin = tuple[CodeType, int]
"""A line of code: cheap to note, formatted by `line_of`."""

_LIBRARY = Path(__file__).parents[3]
_OURS = tuple(f"{path}/" for path in (_LIBRARY, *(Path(package.__path__[0]) for package in (django, psycopg, asgiref))))
_PYTHON = sysconfig.get_paths()["stdlib"] + "/"
_INSTALLED = tuple(f"{sysconfig.get_paths()[name]}/" for name in ("purelib", "platlib"))


def _is_users(code: CodeType) -> bool:
    """Whether it is the user's code, and does not hide in tracebacks as pytest has it (``__tracebackhide__``)."""
    return _is_users_file(code.co_filename) and "__tracebackhide__" not in code.co_varnames


@functools.lru_cache(maxsize=4096)
def _is_users_file(filename: str) -> bool:
    """Whether the file belongs neither to Django, the driver, this library nor Python itself."""
    of_python = filename.startswith(_PYTHON) and not filename.startswith(_INSTALLED)
    return not (of_python or filename.startswith(_OURS) or filename.startswith("<"))


def sent_from(frame: FrameType | None) -> Origin | None:
    """Return the innermost line of the user's code on this stack."""
    while frame is not None:
        if _is_users(frame.f_code):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


def raised_at(error: BaseException) -> Origin | None:
    """Return the innermost line of the user's code in the error's traceback."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if _is_users(traceback.tb_frame.f_code):
            found = traceback.tb_frame.f_code, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def line_of(origin: Origin | None) -> str:
    """Return the line as ``shows/booking.py:12``, relative to the current folder if it is below that."""
    if origin is None:
        return ""
    code, line = origin
    return f"{_shown(code.co_filename)}:{line}"


@functools.lru_cache(maxsize=4096)
def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
