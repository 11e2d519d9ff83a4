"""Whether another process would run the same code, on the same Django, Python and PostgreSQL."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import platform
from collections.abc import Collection, Mapping
from pathlib import Path

import django
from django.apps import apps
from django.db import connections

from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.workers.errors import ClusterUnavailable

_LIBRARY = Path(__file__).parents[2]


def describe_code(alias: str, modules: Collection[str]) -> Mapping[str, str]:
    """Return versions and digests of the code, by what they are of: the apps, the library, and these modules.

    The version of PostgreSQL is that of the alias's server.
    """
    versions = {"Django": django.get_version(), "Python": platform.python_version()}
    with connections[alias]._nodb_cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        (versions["PostgreSQL"],) = cursor.fetchone()
    folders = {f"the code of the app {app.label}": Path(app.path) for app in apps.get_app_configs()}
    folders["the code of django_lockstep"] = _LIBRARY
    codes = {name: _digest(sorted(folder.rglob("*.py"))) for name, folder in folders.items()}
    return {**versions, **codes, **{f"the module {name}": _digest(_files(name)) for name in modules}}


def require_same(expected: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise `ClusterUnavailable` with the first difference between the other process and this one."""
    for name in dict.fromkeys([*expected, *here]):
        there, mine = (versions.get(name, "missing") for versions in (expected, here))
        if there != mine:
            raise ClusterUnavailable(f"{name} is {mine!r} here, and {there!r} where the work was started")


def modules_of(scenario: Scenario) -> list[str]:
    """Return the names of the modules that define the scenario's functions."""
    functions = [scenario.set_up, scenario.invariant, scenario.observe, *scenario.actors.values()]
    innermost = (function.func if isinstance(function, functools.partial) else function for function in functions)
    return sorted({function.__module__ for function in innermost if hasattr(function, "__module__")})


def _files(module: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # it has no place of its own, such as `__main__`
        return []
    return [Path(spec.origin)] if spec and spec.has_location and spec.origin else []


def _digest(files: Collection[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:12]
