"""The session that tries candidates, started by the one that recorded them; shows what it finds as it finds it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

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


class _Session(Protocol):
    """A session that runs, here or elsewhere."""

    @property
    def log(self) -> Path:
        """What it has printed, when it has ended."""

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, for at most so long."""

    def interrupt(self) -> None:
        """Have it end after the try in hand."""


@dataclass(frozen=True, slots=True)
class _LocalSession:
    """One of this machine; its output goes into the log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def status(self) -> int | None:
        return self.process.poll()

    def wait(self, seconds: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)


def confirm_in_second_session(
    config: pytest.Config, recording: Path, found: Findings, *, budget: float, processes: int, cluster: str | None
) -> int:
    """Run the session, and return the exit status: 1 if races were confirmed that are not suppressed.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began. Several
    ``processes`` are as many sessions, each with its share of the candidates; with a ``cluster`` each of its workers
    has one instead.
    """
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    progress = Progress(found, partial(reporter.write, flush=True), budget=budget, is_terminal=reporter.isatty)
    sessions: list[_Session] = []
    with _sessions(config, recording, processes, cluster) as start:
        try:
            sessions.extend(start)
            _show(found, sessions, progress)
        except KeyboardInterrupt:
            for session in sessions:
                session.interrupt()
            for session in sessions:
                session.wait()
            found.read()
    progress.close()
    statuses = [session.status or 0 for session in sessions]
    if pytest.ExitCode.INTERRUPTED in statuses:
        reporter.write_line(f"Interrupted; --race-confirm={recording} goes on from here")
    for session, status in zip(sessions, statuses, strict=True):
        if status not in (0, 1, pytest.ExitCode.INTERRUPTED):
            reporter.write_line(f"The session that tries candidates ended with {status}: {session.log}")
            reporter.write_line(session.log.read_text("utf-8")[-_MOST_SHOWN:])
    # The worst: those of a crash or a signal are far from 0 and 1.
    return max(statuses, key=abs)


@contextmanager
def _sessions(
    config: pytest.Config, recording: Path, processes: int, cluster: str | None
) -> Iterator[Iterator[_Session]]:
    """Yield an iterator that starts one session after the other."""
    if cluster is None:
        shares = (Share(number, processes) for number in range(1, processes + 1))
        yield (_start(config, recording, share) for share in shares)
        return
    # Here, because few searches are on a cluster.
    from django_lockstep.lab.finder.cluster_sessions import ClusterSession
    from django_lockstep.lab.workers.cluster import cluster_workers
    from django_lockstep.lab.workers.same_code import describe_code

    with cluster_workers(cluster) as workers:
        addresses, code = workers.addresses, describe_code(None, ())
        shares = (Share(number, len(addresses)) for number in range(1, len(addresses) + 1))
        yield (
            ClusterSession(
                workers,
                address,
                arguments=[*_arguments(config), f"--race-share={share}"],
                code=code,
                recording=recording,
                share=share,
            )
            for address, share in zip(addresses, shares, strict=True)
        )


def _start(config: pytest.Config, recording: Path, share: Share) -> _LocalSession:
    log = share.log(recording)
    # A cache of its own: what failed last is not what it has to run.
    cache = f"cache_dir={recording.parent / f'cache-{share.number}'}"
    own = (f"--race-confirm={recording}", f"--race-share={share}", "-o", cache)
    with log.open("w", encoding="utf-8") as output:
        # The command is this session's own.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "pytest", *_arguments(config), *own],
            cwd=config.invocation_params.dir,
            env=share.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C in a terminal reaches this process alone, which passes it on once.
            start_new_session=True,
        )
    return _LocalSession(process, log)


def _show(found: Findings, sessions: Sequence[_Session], progress: Progress) -> None:
    """Show what is found as soon as it is known, until the sessions end."""
    running = list(sessions)
    while running:
        running[0].wait(_LOOK_AGAIN)
        running = [session for session in running if session.status is None]
        progress.update(found.read())


def _arguments(config: pytest.Config) -> Iterator[str]:
    """Yield those of the first session, and then what changes the rest of them, wherever it was set."""
    yield from (word for word in map(str, config.invocation_params.args) if word not in _FLAGS)
    yield "--maxfail=0"
    for plugin, option in _OPTIONS.items():
        if config.pluginmanager.hasplugin(plugin):
            yield option
