"""The sessions of pytest that try candidates, started by the one that recorded them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.findings import Findings
from django_lockstep.lab.finder.report.races import NOT_DECIDED, NOTHING_TRIED
from django_lockstep.lab.finder.sessions import Progress, Session, run_sessions
from django_lockstep.lab.finder.shares import Share, parse_budget

_FLAGS = {"--find-races", "--pdb", "--trace", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"}
"""Options of the first session that would start a third one, wait for a person, or stop at the first failure."""
_OPTIONS = {"numprocesses": "-n0", "no_cov": "--no-cov", "timeout": "--timeout=0", "xmlpath": "--junit-xml="}
"""Of plugins, by what they set: one process, for a test that is forked takes long; reports are the first session's."""


def confirm_in_second_session(config: pytest.Config, recording: Path, findings: Findings) -> int:
    """Run the session, and return its exit status, or 0 if it came to its end, whatever it found.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began. Several processes
    are as many sessions, each with its share of the candidates.
    """
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    write, budget = partial(reporter.write, flush=True), parse_budget(config.getoption("--race-budget"))
    progress = Progress(findings=findings, write=write, budget=budget, is_terminal=reporter.isatty)
    return run_sessions(
        _start_sessions(config, recording),
        progress,
        # Of several sessions none knows what the others have found.
        completed=(0, 1, NOTHING_TRIED, NOT_DECIDED),
        interrupted=pytest.ExitCode.INTERRUPTED,
        option=f"--race-confirm={recording}",
    )


def _start_sessions(config: pytest.Config, recording: Path) -> Iterator[Session]:
    """Start a session for each share: that of the session that recorded, with what makes it one that tries."""
    count = config.getoption("--race-processes")
    for share in (Share(number, count) for number in range(1, count + 1)):
        # A cache of its own: what failed last is not what it has to run.
        cache = f"cache_dir={recording.parent / f'cache-{share.number}'}"
        own = (f"--race-confirm={recording}", f"--race-share={share}", "-o", cache)
        command = [sys.executable, "-m", "pytest", *_arguments(config), *own]
        yield Session(command, recording, share=share, folder=config.invocation_params.dir)


def _arguments(config: pytest.Config) -> Iterator[str]:
    """Yield those of the first session, then its root folder, settings and plugins, and what changes the rest."""
    call = config.invocation_params
    yield from (word for word in map(str, call.args) if word not in _FLAGS)
    # pytest looks for root and settings beside files that the command names: a report of another plugin, which the
    # first session has written, would change them.
    yield f"--rootdir={os.path.relpath(config.rootpath, call.dir)}"
    if config.inipath is not None:
        yield f"--config-file={os.path.relpath(config.inipath, call.dir)}"
    names = (getattr(plugin, "__name__", plugin) for plugin in call.plugins or ())
    yield from (f"-p{name}" for name in names if isinstance(name, str))
    yield "--maxfail=0"
    # Not by the plugins' names: one that -p or PYTEST_PLUGINS names has another one.
    yield from (option for name, option in _OPTIONS.items() if hasattr(config.option, name))
