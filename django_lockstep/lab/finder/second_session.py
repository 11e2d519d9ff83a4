"""The session that tries candidates, started by the one that recorded them; shows what it finds as it finds it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.findings import Findings
from django_lockstep.lab.finder.progress import Progress

__all__ = ["confirm_in_second_session"]

_FLAGS = {"--find-races", "--pdb", "--trace", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"}
"""Options of the first session that would start a third one, wait for a person, or stop at the first failure."""
_OPTIONS = {"xdist": "-n0", "_cov": "--no-cov", "timeout": "--timeout=0", "junitxml": "--junit-xml="}
"""Of plugins: for a single process, and a test that is forked takes long; reports are those of the first session."""

_LOOK_AGAIN = 0.3
"""Seconds between two looks at what the other session has found."""
_MOST_SHOWN = 4000
"""Characters of its output that are shown if it fails."""


def confirm_in_second_session(config: pytest.Config, recording: Path, found: Findings, *, budget: float) -> int:
    """Run the session, and return the exit status: 1 if races were confirmed that are not suppressed.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began.
    """
    log = recording.with_name(f"{recording.name}.log")
    command = [sys.executable, "-m", "pytest", *_arguments(config, recording)]
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    with log.open("w", encoding="utf-8") as output:
        # The command is this session's own.
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=config.invocation_params.dir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C in a terminal reaches this process alone, which passes it on once.
            start_new_session=True,
        )
        write = partial(reporter.write, flush=True)
        progress = Progress(found, write, budget=budget, is_terminal=reporter.isatty)
        try:
            _show(found, process, progress)
        except KeyboardInterrupt:
            _interrupt(process)
            found.read()
        progress.close()
    if process.returncode == pytest.ExitCode.INTERRUPTED:
        reporter.write_line(f"Interrupted; --race-confirm={recording} goes on from here")
    elif process.returncode not in (0, 1):
        reporter.write_line(f"The session that tries candidates ended with {process.returncode}: {log}")
        reporter.write_line(log.read_text("utf-8")[-_MOST_SHOWN:])
    return process.returncode


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Have the process end, which keeps what it knows."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    process.wait()


def _show(found: Findings, process: subprocess.Popen[bytes], progress: Progress) -> None:
    """Show what is found as soon as it is known, until the process ends."""
    ended = False
    while not ended:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_AGAIN)
        ended = process.poll() is not None
        progress.update(found.read())


def _arguments(config: pytest.Config, recording: Path) -> Iterator[str]:
    """Yield those of the first session, and then what changes the rest of them, wherever it was set."""
    yield from (word for word in map(str, config.invocation_params.args) if word not in _FLAGS)
    # A cache of its own: what failed last is not what it has to run.
    yield from (f"--race-confirm={recording}", "--maxfail=0", "-o", f"cache_dir={recording.parent / 'cache'}")
    for plugin, option in _OPTIONS.items():
        if config.pluginmanager.hasplugin(plugin):
            yield option
