"""pytest's side of the finder: ``--find-races`` records the tests that run, then confirms what may race.

Nothing of Django or the finder is imported unless one of its options is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.shares import parse_budget


def add_options(group: Any) -> None:
    """Add the options of the finder."""
    for name, text in _SWITCHES.items():
        group.addoption(name, action="store_true", help=text)
    for name, text in _FILES.items():
        group.addoption(name, type=Path, default=None, metavar="FILE", help=text)
    for name, (default, metavar, text) in _VALUES.items():
        group.addoption(name, type=type(default), default=default, metavar=metavar, help=text)
    # What one of them has to try.
    group.addoption("--race-share", default=None, help=argparse.SUPPRESS)


_SWITCHES = {
    "--find-races": "record what the tests do, then try what may race by running it twice at the same time",
    "--race-values": "record parameters and rows as they are, and have reports show strings of more than 20 characters",
}
_FILES = {
    "--race-confirm": "try the candidates of an earlier recording, but for those that are decided",
    "--race-report": "write a report; the ending chooses the format: .txt, .json, .html, .sarif or .xml for JUnit",
    "--race-fix": "write the first change of the code that was tried and helps, as a diff for git apply",
    "--race-record": "where the recording is kept (default: a file in pytest's cache, named at the end)",
    "--race-baseline": "an earlier report, ending in .json: the races that it confirms are accepted",
}
_VALUES: dict[str, tuple[str | int, str, str]] = {
    "--race-budget": ("5m", "TIME", "time for these tries, such as 90s (default: 5m), the worst first; 0 only lists"),
    "--race-processes": (1, "N", "processes that try them, each with a test database of its own (default: 1)"),
}


def register(config: pytest.Config) -> None:
    """Have the tests recorded, or the candidates tried, where that is asked for."""
    if config.option.collectonly or (hasattr(config, "workerinput") and not config.getoption("--find-races")):
        return
    confirming = config.getoption("--race-confirm")
    if not (confirming or config.getoption("--find-races")):
        return
    suppressions = _require_usable(config)
    from django_lockstep.lab.finder.session_plugins import ConfirmPlugin, RecordPlugin

    # The second session may have been given --find-races, too, by the project's settings or the environment.
    with _refused("--race-confirm"):
        plugin = (ConfirmPlugin if confirming else RecordPlugin)(config, suppressions)
    config.pluginmanager.register(plugin)


@contextmanager
def _refused(option: str = "") -> Iterator[None]:
    """Have pytest say what is wrong with an option, or with the project's settings, and end."""
    from django.core.exceptions import ImproperlyConfigured

    from django_lockstep.errors import LockstepError

    try:
        yield
    except (OSError, ValueError, ImportError, ImproperlyConfigured, LockstepError) as error:
        raise pytest.UsageError(f"{option}: {error}" if option else str(error)) from error


def _require_usable(config: pytest.Config) -> dict[str, str]:
    """Refuse what could only fail after all tests; return the races that the project accepts."""
    with _refused("--race-budget"):
        parse_budget(config.getoption("--race-budget"))
    with _refused("--race-processes"):
        _require_processes(config)
    with _refused("--find-races"):
        import django
        from django.apps import apps

        # pytest-django does it later, if a conftest configures the settings.
        if not apps.ready:
            django.setup()
        from django_lockstep.lab.finder.report.files import require_report
        from django_lockstep.lab.finder.report.races import read_suppressions
        from django_lockstep.lab.output import require_writable
    with _refused():
        if path := config.getoption("--race-report"):
            require_report(path, option="--race-report")
        if path := config.getoption("--race-fix"):
            require_writable(path, option="--race-fix")
        return read_suppressions(config.rootpath, config.getoption("--race-baseline"))


def _require_processes(config: pytest.Config) -> None:
    number = config.getoption("--race-processes")
    if number < 1:
        raise ValueError(f"there must be at least 1, not {number}")
    if number > 1 and config.getoption("--race-confirm") and not config.getoption("--race-share"):
        raise ValueError("several try candidates after --find-races only; --race-confirm goes on in one")


def name_files_by_equals_signs(config: pytest.Config) -> None:
    """Start pytest again if a file of the finder's, named with a blank before it, exists.

    pytest looks for the project's settings before it knows these options, and takes such a file for one with tests.
    Raises ``UsageError`` if another program has started pytest.
    """
    args = list(map(str, config.invocation_params.args))
    words = iter(args)
    joined = [f"{word}={next(words, '')}" if word in _FILES else word for word in words]
    if not any(option in _FILES and Path(file).exists() for option, file in pairwise(args)):
        return
    if sys.orig_argv[-len(args) :] != args:
        raise pytest.UsageError(f"{', '.join(_FILES)}: name files with an equals sign, or pytest takes them for tests")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1 : -len(args)], *joined])  # noqa: S606
