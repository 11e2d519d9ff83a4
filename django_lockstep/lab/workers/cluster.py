"""A Dask cluster behind the interface of the standard library's executors: as one, or each of its workers as one."""

from __future__ import annotations

import contextlib
import pickle
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

from django_lockstep.lab.workers import relay
from django_lockstep.lab.workers.errors import ClusterUnavailable

__all__ = ["ClusterWorkers", "cluster_executor", "cluster_workers"]

_Result = TypeVar("_Result")
_PATIENCE = 30
"""Seconds for which a scheduler, or its first worker, is waited for."""
_ASKED = 1.0
"""Seconds without an answer after which the scheduler is asked whether the worker is still there."""


@contextmanager
def cluster_executor(
    address: str, prepare: Callable[[], AbstractContextManager[tuple[Executor, int]]]
) -> Iterator[tuple[Executor, int]]:
    """Yield an executor, and how many tasks it does at a time: as many as the cluster's workers have threads.

    Tasks are done by the executors of ``prepare``, which is picklable: for each thread a process enters that context,
    and leaves it when the block ends, when a task has broken the executor, or when the cluster or this process is gone.
    Raises `ClusterUnavailable` without Dask, if no scheduler answers at the address, and if it has no workers.
    """
    with _connected(address) as client:
        executor = _ClusterExecutor(client, pickle.dumps(prepare))
        try:
            yield executor, sum(client.nthreads().values())
        finally:
            executor.close()


@contextmanager
def cluster_workers(address: str) -> Iterator[ClusterWorkers]:
    """Yield the cluster's workers, of which each can be an executor of its own. Raises as `cluster_executor` does."""
    with _connected(address) as client:
        workers = ClusterWorkers(client)
        try:
            yield workers
        finally:
            workers.close()


class ClusterWorkers:
    """The workers of a cluster, by their addresses."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executors: list[_WorkerExecutor] = []

    @property
    def addresses(self) -> list[str]:
        """Those that the scheduler has now."""
        return sorted(self._client.nthreads())

    def executor(self, worker: str, prepare: Callable[[], AbstractContextManager[tuple[Executor, int]]]) -> Executor:
        """Return an executor whose tasks are done by one process beside this worker, one after the other.

        For ``prepare`` see `cluster_executor`. Its tasks raise ``BrokenExecutor`` if the process or the worker is lost.
        """
        self._executors.append(_WorkerExecutor(self._client, pickle.dumps(prepare), worker=worker))
        return self._executors[-1]

    def close(self) -> None:
        """Cancel all tasks, and end the processes that did them."""
        for executor in self._executors:
            executor.close()


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    client = _connect(address)
    try:
        _await_worker(client, address)
        yield client
    finally:
        client.close(timeout=_PATIENCE)


def _await_worker(client: Any, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_PATIENCE)
    except TimeoutError as error:
        raise ClusterUnavailable(f"The scheduler at {address!r} has had no worker for {_PATIENCE} s") from error


def _connect(address: str) -> Any:
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError as error:
        raise ClusterUnavailable('A cluster needs Dask: pip install "django-lockstep-lab[cluster]"') from error
    try:
        # Before a client is made, which has threads and connections to end.
        get_address_host_port(address, strict=True)
        return Client(address, timeout=_PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterUnavailable(f"No scheduler of Dask answers at {address!r}: {error}") from error


class _DaskExecutor(Executor):
    """Sends what is pickled already: a worker of Dask has not set Django up, and could not load it."""

    def __init__(self, client: Any, start: bytes, *, worker: str | None = None) -> None:
        self._client = client
        self._start = start
        self._workers = None if worker is None else [worker]
        self._job = secrets.token_hex(8)
        # Dask forgets the task of a future that nobody holds.
        self._sent: set[Any] = set()

    def close(self) -> None:
        """Cancel all tasks, and end the processes that did them."""
        # A scheduler that is gone cannot pass it on: then the processes end because they have nothing to do.
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._sent))
            # One that went away would be waited for; the processes beside it have ended with it.
            if self._is_there():
                self._client.run(relay.close, self._job, on_error="ignore", workers=self._workers)

    def _is_there(self) -> bool:
        """Whether the scheduler has the worker, if it is for a certain one."""
        return self._workers is None or self._workers[0] in self._client.nthreads()

    def _send(self, task: bytes) -> Any:
        try:
            # Not pure: Dask would give one answer to tasks that are alike.
            sent = self._client.submit(relay.pass_on, self._job, self._start, task, pure=False, workers=self._workers)
        except Exception as error:
            raise BrokenExecutor(f"the scheduler cannot be reached: {error}") from error
        self._sent.add(sent)
        return sent


class _ClusterExecutor(_DaskExecutor):
    """Has any worker do a task; one whose worker is lost is done by another one."""

    def submit(self, function: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have a worker call the function; the future raises ``BrokenExecutor`` if its process, or Dask, lost it."""
        future: Future[_Result] = Future()
        self._send(pickle.dumps((function, args, kwargs))).add_done_callback(lambda done: self._settle(future, done))
        return future

    def _settle(self, future: Future[Any], done: Any) -> None:
        self._sent.discard(done)
        try:
            future.set_result(_answer(_lost_or(done.result)))
        except Exception as error:  # noqa: BLE001 - what the task has raised, or how it was lost
            future.set_exception(error)


class _WorkerExecutor(_DaskExecutor):
    """Has one worker do one task after the other."""

    def __init__(self, client: Any, start: bytes, *, worker: str) -> None:
        super().__init__(client, start, worker=worker)
        # Its own thread: all callbacks of Dask have one, and an answer that was lost with its worker never comes.
        self._thread = ThreadPoolExecutor(1)

    def submit(self, function: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have it call the function; the future raises ``BrokenExecutor`` if the worker, or its process, is lost."""
        return self._thread.submit(self._ask, pickle.dumps((function, args, kwargs)))

    def close(self) -> None:
        super().close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self, task: bytes) -> Any:
        sent = self._send(task)
        try:
            return _answer(_lost_or(partial(self._await, sent)))
        finally:
            self._sent.discard(sent)

    def _await(self, sent: Any) -> bytes:
        while True:
            try:
                reply: bytes = sent.result(timeout=_ASKED)
            except TimeoutError:
                # The scheduler keeps a task for a worker that went away.
                if not self._is_there():
                    raise BrokenExecutor("the cluster does not know it any more") from None
            else:
                return reply


def _lost_or(reply: Callable[[], bytes]) -> bytes:
    """Return the reply. Raises ``BrokenExecutor`` if there is none: it was lost with a worker, or cancelled."""
    try:
        return reply()
    except BrokenExecutor:
        raise
    except Exception as error:
        raise BrokenExecutor(f"{type(error).__name__}: {error}") from error


def _answer(reply: bytes) -> Any:
    """Return what the task has returned, or raise what it has raised."""
    worked, answer = pickle.loads(reply)  # noqa: S301 - from a process that was asked for it
    if not worked:
        raise answer
    return answer
