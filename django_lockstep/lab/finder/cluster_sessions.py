"""Sessions that try candidates beside the workers of a Dask cluster; what they find is kept on this machine.

`begin` and `look` run there, in the folder in which the worker was started. What a session has found comes back with
each look, so that a worker that is lost takes nothing with it: another one goes on from there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from django_lockstep.lab.finder.findings import findings_path
from django_lockstep.lab.finder.shares import Share
from django_lockstep.lab.workers.cluster import ClusterWorkers
from django_lockstep.lab.workers.same_code import describe_code, require_same

__all__ = ["ClusterSession", "begin", "look", "session_host"]

_MOST_LOSSES = 3
"""Workers that one share may lose."""
_LOOK_AGAIN = 0.3
"""Seconds between two looks at what a session has found."""
_GRACE = 5.0
"""Seconds that an interrupted session has to end; less than this process has itself."""


# Beside the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How far a session is."""

    found: bytes
    """The lines that it has added to its findings since the last look."""
    status: int | None
    """Its exit status; None while it runs."""
    log: bytes
    """What it has printed, once it has ended."""


class _Host:
    """The session that this process has started."""

    def __init__(self, folder: Path) -> None:
        self._recording = folder / "recording.jsonl"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes]
        self._shown = 0

    def begin(self, arguments: Sequence[str], share: Share, recording: bytes, findings: bytes, *, attempt: int) -> None:
        self._recording.write_bytes(recording)
        findings_path(self._recording).write_bytes(findings)
        self._shown = len(findings)
        own = (
            f"--race-confirm={self._recording}",
            f"--race-report={self._recording.with_name('report.txt')}",  # not beside the code, where it is asked for
            *("-o", f"cache_dir={self._recording.with_name('cache')}"),
        )
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the command of the session that asked for it
                [sys.executable, "-m", "pytest", *arguments, *own],
                # A lost worker's session may be in its database for some seconds more.
                env=share.environment(place=f"_{attempt}"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def look(self, *, interrupt: bool) -> Glance:
        if interrupt:
            self._process.send_signal(signal.SIGINT)
        status = self._process.poll()  # before the rest: what it writes afterwards is seen next time
        found = findings_path(self._recording).read_bytes()[self._shown :]
        found = found[: found.rfind(b"\n") + 1]
        self._shown += len(found)
        return Glance(found=found, status=status, log=b"" if status is None else self._log.read_bytes())

    def close(self) -> None:
        with suppress(AttributeError, ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)


_hosts: list[_Host] = []
"""This process's one host."""


@contextmanager
def session_host(expected: Mapping[str, str]) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of `begin` and `look`, and 1; the session ends with the block.

    Raises `ClusterUnavailable` if this machine has other code or versions.
    """
    require_same(expected, describe_code(None, ()))
    with tempfile.TemporaryDirectory(prefix="races-") as folder, ThreadPoolExecutor(1) as executor:
        _hosts.append(_Host(Path(folder)))
        try:
            yield executor, 1
        finally:
            _hosts[0].close()


def begin(arguments: Sequence[str], share: Share, recording: bytes, findings: bytes, *, attempt: int) -> None:
    """Start a session of pytest that tries this share of the recording's candidates, but for what was found.

    Each ``attempt`` at a share has databases of its own.
    """
    _hosts[0].begin(arguments, share, recording, findings, attempt=attempt)


def look(*, interrupt: bool = False) -> Glance:
    """Return how far the session is; ``interrupt`` ends it after the try in hand."""
    return _hosts[0].look(interrupt=interrupt)


# Where the search was started


class ClusterSession:
    """A session that tries a share of the candidates beside a worker, for the rest as one on this machine.

    A worker that is lost is replaced by another one of the cluster, which goes on with what is left of the share.
    """

    def __init__(
        self,
        cluster: ClusterWorkers,
        worker: str,
        *,
        arguments: Sequence[str],
        code: Mapping[str, str],
        recording: Path,
        share: Share,
    ) -> None:
        """Start it on this worker, if that has the same ``code``, and on others as long as workers are lost."""
        self.log = share.log(recording)
        self.status: int | None = None
        self._cluster = cluster
        self._worker = worker
        self._arguments = arguments
        self._code = code
        self._recording = recording
        self._share = share
        self._interrupted = False
        # Not `Thread.join`: after a Ctrl-C in the middle of it, Python 3.11 takes the thread for ended.
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, for at most so long."""
        # Not without a limit: Ctrl-C that comes a moment before this thread begins to wait would be noticed afterwards.
        while not self._ended.wait(_LOOK_AGAIN if seconds is None else seconds) and seconds is None:
            pass

    def interrupt(self) -> None:
        """Have it end after the try in hand."""
        self._interrupted = True

    def _run(self) -> None:
        try:
            trouble = self._try_until_done()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other shares go on
            trouble = str(error)
        try:
            if self.status is None:
                self._end(pytest.ExitCode.INTERNAL_ERROR, trouble.encode())
        finally:
            self._ended.set()

    def _try_until_done(self) -> str:
        """Try the share on one worker after the other; return why it is not done, if it is not."""
        trouble = ""
        for attempt in range(1, _MOST_LOSSES + 1):
            try:
                self._try_share(attempt)
            except BrokenExecutor as error:
                trouble = f"The worker at {self._worker} was lost: {error}"
            others = [address for address in self._cluster.addresses if address != self._worker]
            if self.status is not None or self._interrupted or not others:
                break
            self._worker = others[self._share.number % len(others)]
        return trouble

    def _try_share(self, attempt: int) -> None:
        executor = self._cluster.executor(self._worker, partial(session_host, self._code))
        findings = findings_path(self._recording)
        known = findings.read_bytes() if findings.exists() else b""
        given = (self._arguments, self._share, self._recording.read_bytes(), known)
        executor.submit(begin, *given, attempt=attempt).result()
        interrupted = False
        while True:
            stop = self._interrupted and not interrupted
            glance = executor.submit(look, interrupt=stop).result()
            interrupted = interrupted or stop
            if glance.found:
                # One write without a buffer: other sessions append to the file, too.
                with findings.open("ab", buffering=0) as file:
                    file.write(b"\n" + glance.found)
            if glance.status is not None:
                self._end(glance.status, glance.log)
                return
            time.sleep(_LOOK_AGAIN)

    def _end(self, status: int, log: bytes) -> None:
        self.log.write_bytes(log)
        self.status = status
