"""The session that tries candidates, started by the one that recorded them; shows what it finds as it finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_lockstep.lab.finder.findings import Findings
from django_lockstep.lab.finder.progress import Progress
from django_lockstep.lab.finder.shares import Share

__all__ = ["confirm_in_second_session"]

_FLAGS = {"--find-races", "--pdb", "--trace", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"}
"""Options of the first session that would start a third one, wait for a person, or stop at the first failure."""
_OPTIONS = {"xdist": "-n0", "_cov": "--no-cov", "timeout": "--timeout=0", "junitxml": "--junit-xml="}
"""Of plugins: for a single process, and a test that is forked takes long; reports are those of the first session."""

_LOOK_AGAIN = 0.3
"""Seconds between two looks at what the other session has found."""
_MOST_SHOWN = 4000
"""Characters of its output that are shown if it fails."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A session that runs; its output goes into the log."""

    process: subprocess.Popen[bytes]
    log: Path


def confirm_in_second_session(
    config: pytest.Config, recording: Path, found: Findings, *, budget: float, processes: int
) -> int:
    """Run the session, and return the exit status: 1 if races were confirmed that are not suppressed.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began. Several
    ``processes`` are as many sessions, each with its share of the candidates.
    """
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    progress = Progress(found, partial(reporter.write, flush=True), budget=budget, is_terminal=reporter.isatty)
    shares = [Share(number, processes) for number in range(1, processes + 1)]
    sessions: list[_Session] = []
    try:
        sessions.extend(_start(config, recording, share) for share in shares)
        _show(found, [session.process for session in sessions], progress)
    except KeyboardInterrupt:
        _interrupt([session.process for session in sessions])
        found.read()
    progress.close()
    statuses = [session.process.returncode for session in sessions]
    if pytest.ExitCode.INTERRUPTED in statuses:
        reporter.write_line(f"Interrupted; --race-confirm={recording} goes on from here")
    for session, status in zip(sessions, statuses, strict=True):
        if status not in (0, 1, pytest.ExitCode.INTERRUPTED):
            reporter.write_line(f"The session that tries candidates ended with {status}: {session.log}")
            reporter.write_line(session.log.read_text("utf-8")[-_MOST_SHOWN:])
    # The worst: those of a crash or a signal are far from 0 and 1.
    return max(statuses, key=abs)


def _start(config: pytest.Config, recording: Path, share: Share) -> _Session:
    name = f"{recording.name}.log" if share.number == 1 else f"{recording.name}.{share.number}.log"
    log = recording.with_name(name)
    with log.open("w", encoding="utf-8") as output:
        # The command is this session's own.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "pytest", *_arguments(config, recording, share)],
            cwd=config.invocation_params.dir,
            env=_environment(share),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C in a terminal reaches this process alone, which passes it on once.
            start_new_session=True,
        )
    return _Session(process, log)


def _environment(share: Share) -> dict[str, str]:
    """Return the environment of the share's session: pytest-django takes the name of its test databases from it."""
    if share.number == 1:
        return dict(os.environ)
    # What tox sets for environments that run in parallel; there may be such around.
    outer = os.environ.get("TOX_PARALLEL_ENV", "")
    return {**os.environ, "TOX_PARALLEL_ENV": f"{outer}races{share.number}"}


def _interrupt(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Have the processes end, which keep what they know."""
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait()


def _show(found: Findings, processes: Sequence[subprocess.Popen[bytes]], progress: Progress) -> None:
    """Show what is found as soon as it is known, until the processes end."""
    running = list(processes)
    while running:
        with suppress(subprocess.TimeoutExpired):
            running[0].wait(_LOOK_AGAIN)
        running = [process for process in running if process.poll() is None]
        progress.update(found.read())


def _arguments(config: pytest.Config, recording: Path, share: Share) -> Iterator[str]:
    """Yield those of the first session, and then what changes the rest of them, wherever it was set."""
    yield from (word for word in map(str, config.invocation_params.args) if word not in _FLAGS)
    # A cache of its own: what failed last is not what it has to run.
    yield from (f"--race-confirm={recording}", f"--race-share={share}", "--maxfail=0")
    yield from ("-o", f"cache_dir={recording.parent / f'cache-{share.number}'}")
    for plugin, option in _OPTIONS.items():
        if config.pluginmanager.hasplugin(plugin):
            yield option
