"""What the extra ``lab`` brings, and what is said where it is not installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

__all__ = ["missing_parser"]


def missing_parser() -> str:
    """Return what to install if the explorer cannot be imported without sqlglot; empty if it can."""
    try:
        import_module("django_lockstep.lab.explorer")
    except ImportError as error:
        # Not `ParserMissing`: its own package is the one that cannot be imported.
        if find_spec("sqlglot") is not None:
            raise
        return str(error)
    return ""
