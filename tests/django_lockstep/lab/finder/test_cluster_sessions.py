"""A session beside a worker, and Ctrl-C while the search waits for it."""

import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, cast

import pytest

from django_lockstep.lab.finder.second_session import ClusterSession, Glance, Host
from django_lockstep.lab.finder.shares import Share
from django_lockstep.lab.workers.cluster import Cluster

RUNNING = Glance(findings=b"", status=None, log=b"")
INTERRUPTED = Glance(findings=b"", status=pytest.ExitCode.INTERRUPTED, log=b"the last try is done")


class Worker(Executor):
    """A cluster of one worker, whose session runs until it is interrupted; Ctrl-C is pressed at the first look."""

    threads = {"tcp://worker": 1}

    def __init__(self) -> None:
        self._looks = 0

    def executor(self, prepare: Callable[[], Any], *, worker: str) -> Executor:
        return self

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(self._glance(**kwargs) if function is Host.look else RUNNING)
        return answer

    def _glance(self, *, interrupt: bool) -> Glance:
        self._looks += 1
        if self._looks == 1:
            signal.raise_signal(signal.SIGINT)
        return INTERRUPTED if interrupt else RUNNING


def test_the_end_of_an_interrupted_session_is_waited_for(tmp_path: Path) -> None:
    (recording := tmp_path / "races.jsonl").write_text("")
    session = ClusterSession(
        cast("Cluster", Worker()), "tcp://worker", arguments=[], recording=recording, share=Share(1, 1)
    )
    with pytest.raises(KeyboardInterrupt):
        session.wait(1.0)
    session.interrupt()
    while session.status is None:
        session.wait(1.0)
    assert session.status == pytest.ExitCode.INTERRUPTED
    assert session.log.read_text() == "the last try is done"
