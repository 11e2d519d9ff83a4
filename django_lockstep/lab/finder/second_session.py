"""The sessions that try candidates, started by the one that recorded them; it shows what they find as they find it.

They run on this machine, or beside the workers of a Dask cluster, in the folder in which a worker was started. What is
found comes back while it is found, so that a worker that is lost takes nothing with it: another one goes on from there.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from django_lockstep.lab.finder.findings import Findings, findings_path
from django_lockstep.lab.finder.report.races import NOT_DECIDED, NOTHING_TRIED
from django_lockstep.lab.finder.sessions import LOOK_AGAIN, LocalSession, Progress, Session, run_sessions
from django_lockstep.lab.finder.shares import Share, parse_budget
from django_lockstep.lab.workers.cluster import Cluster, connect

_FLAGS = {"--find-races", "--pdb", "--trace", "--sw", "--stepwise", "--sw-skip", "--stepwise-skip"}
"""Options of the first session that would start a third one, wait for a person, or stop at the first failure."""
_OPTIONS = {"numprocesses": "-n0", "no_cov": "--no-cov", "timeout": "--timeout=0", "xmlpath": "--junit-xml="}
"""Of plugins, by what they set: one process, for a test that is forked takes long; reports are the first session's."""
_MOST_LOSSES = 3
"""Workers that one share may lose."""
_GRACE = 5.0
"""Seconds that an interrupted session has to end beside a worker; less than the process has that started it."""


_Glance = tuple[bytes, int | None, bytes]
"""What a session beside a worker has added to its findings since the last look, its exit status (None while it runs),
and what it has printed, once it has ended."""


class Host(ThreadPoolExecutor):
    """Beside a worker: does what is submitted to it, which are its own methods, with a session of this process."""

    def __init__(self) -> None:
        super().__init__(1)
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="races-"))
        self._recording = Path(folder, "recording.jsonl")
        self._session: LocalSession
        self._shown = 0
        self._interrupted = False

    def __exit__(self, *error: Any) -> None:
        """End the session, too."""
        with self._stack:
            super().__exit__(*error)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call one of its methods."""
        return super().submit(function, self, *args, **kwargs)

    def begin(self, arguments: Sequence[str], share: Share, recording: bytes, findings: bytes) -> _Glance:
        """Start a session of pytest that tries this share of the recording's candidates, but for what was found."""
        self._recording.write_bytes(recording)
        findings_path(self._recording).write_bytes(findings)
        self._shown = len(findings)
        # Not beside the code, where it is asked for.
        report = f"--race-report={self._recording.with_name('report.txt')}"
        # A lost worker's session may be in its database for some seconds more.
        share = replace(share, place=f"_{secrets.token_hex(3)}")
        self._session = LocalSession(
            _command([*arguments, report], self._recording, share), self._recording, share=share
        )
        self._stack.callback(self._session.end, _GRACE)
        return self.look(interrupt=False)

    def look(self, *, interrupt: bool) -> _Glance:
        """Return how far it is, as soon as it ends or in a moment; ``interrupt`` ends it after the try in hand."""
        if interrupt and not self._interrupted:
            self._session.interrupt()
            self._interrupted = True
        self._session.wait(LOOK_AGAIN)
        status = self._session.status  # before the rest: what it writes afterwards is seen next time
        findings = findings_path(self._recording).read_bytes()[self._shown :]
        findings = findings[: findings.rfind(b"\n") + 1]
        self._shown += len(findings)
        return findings, status, b"" if status is None else self._session.log.read_bytes()


class ClusterSession:
    """A session that tries a share of the candidates beside a worker, for the rest as one on this machine."""

    def __init__(
        self, cluster: Cluster, worker: str, *, arguments: Sequence[str], recording: Path, share: Share
    ) -> None:
        """Start it beside this worker, and beside others as long as workers are lost."""
        self.log = share.log(recording)
        self.status: int | None = None
        self._cluster = cluster
        self._worker = worker
        self._arguments = arguments
        self._recording = recording
        self._share = share
        self._losses = 0
        self._interrupted = False
        self._begin()

    def wait(self, seconds: float) -> None:
        """Take what it has found since the last time, or wait for that for at most so long."""
        if not wait([self._answer], seconds).done:
            return
        try:
            self._take()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other shares go on
            self._end(pytest.ExitCode.INTERNAL_ERROR, str(error).encode())

    def interrupt(self) -> None:
        """Have it end after the try in hand."""
        self._interrupted = True

    def _begin(self) -> None:
        host = self._cluster.executor(Host, worker=self._worker)
        self._submit = cast("Callable[..., Future[_Glance]]", host.submit)  # which adds the host itself
        findings = findings_path(self._recording)
        earlier = findings.read_bytes() if findings.exists() else b""
        recording = self._recording.read_bytes()
        self._answer = self._submit(Host.begin, self._arguments, self._share, recording, earlier)

    def _take(self) -> None:
        try:
            findings, status, log = self._answer.result()
        except BrokenExecutor as error:
            self._losses += 1
            others = [address for address in self._cluster.threads if address != self._worker]
            if self._interrupted or self._losses == _MOST_LOSSES or not others:
                raise BrokenExecutor(f"The worker at {self._worker} was lost: {error}") from error
            self._worker = others[self._share.number % len(others)]
            self._begin()
            return
        if findings:
            # One write without a buffer: other sessions append to the file, too.
            with findings_path(self._recording).open("ab", buffering=0) as file:
                file.write(b"\n" + findings)
        if status is None:
            self._answer = self._submit(Host.look, interrupt=self._interrupted)
        else:
            self._end(status, log)

    def _end(self, status: int, log: bytes) -> None:
        self.log.write_bytes(log)
        self.status = status


def confirm_in_second_session(config: pytest.Config, recording: Path, findings: Findings) -> int:
    """Run the session, and return its exit status, or 0 if it came to its end, whatever it found.

    A process of its own, because the first session's database and fixtures are gone by now, and because its tests
    commit. Its output goes into a file beside the recording, and is shown if it ends before it began. Several processes
    are as many sessions, each with its share of the candidates; with a cluster each of its workers has one instead.
    """
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    write, budget = partial(reporter.write, flush=True), parse_budget(config.getoption("--race-budget"))
    progress = Progress(findings=findings, write=write, budget=budget, is_terminal=reporter.isatty)
    cluster = config.getoption("--race-cluster")
    with nullcontext() if cluster is None else connect(cluster) as workers:
        return run_sessions(
            _start_sessions(config, recording, workers),
            progress,
            # Of several sessions none knows what the others have found.
            completed=(0, 1, NOTHING_TRIED, NOT_DECIDED),
            interrupted=pytest.ExitCode.INTERRUPTED,
            option=f"--race-confirm={recording}",
        )


def _start_sessions(config: pytest.Config, recording: Path, workers: Cluster | None) -> Iterator[Session]:
    arguments = list(_arguments(config))
    addresses = [""] * config.getoption("--race-processes") if workers is None else list(workers.threads)
    for number, address in enumerate(addresses, 1):
        share = Share(number, len(addresses))
        if workers is None:
            command = _command(arguments, recording, share)
            yield LocalSession(command, recording, share=share, folder=config.invocation_params.dir)
        else:
            yield ClusterSession(workers, address, arguments=arguments, recording=recording, share=share)


def _command(arguments: Iterable[str], recording: Path, share: Share) -> list[str]:
    """Return that of the session that recorded, with what makes it one that tries a share."""
    # A cache of its own: what failed last is not what it has to run.
    cache = f"cache_dir={recording.parent / f'cache-{share.number}'}"
    own = (f"--race-confirm={recording}", f"--race-share={share.option}", "-o", cache)
    return [sys.executable, "-m", "pytest", *arguments, *own]


def _arguments(config: pytest.Config) -> Iterator[str]:
    """Yield those of the first session, then its root folder, settings and plugins, and what changes the rest."""
    call = config.invocation_params
    yield from (word for word in map(str, call.args) if word not in _FLAGS)
    # pytest looks for root and settings beside files that the command names: a report of another plugin, which the
    # first session has written, would change them. Relative: a worker of a cluster has the project elsewhere.
    yield f"--rootdir={os.path.relpath(config.rootpath, call.dir)}"
    if config.inipath is not None:
        yield f"--config-file={os.path.relpath(config.inipath, call.dir)}"
    names = (getattr(plugin, "__name__", plugin) for plugin in call.plugins or ())
    yield from (f"-p{name}" for name in names if isinstance(name, str))
    yield "--maxfail=0"
    # Not by the plugins' names: one that -p or PYTEST_PLUGINS names has another one.
    yield from (option for name, option in _OPTIONS.items() if hasattr(config.option, name))
