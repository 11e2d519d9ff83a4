"""A Dask cluster behind the interface of the standard library's executors: all of it as one, or a worker as one."""

from __future__ import annotations

import contextlib
import pickle
import secrets
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from django_lockstep.lab.workers import relay
from django_lockstep.lab.workers.errors import ClusterUnavailable
from django_lockstep.lab.workers.same_code import describe_code

_Result = TypeVar("_Result")
_PATIENCE = 30
"""Seconds for which a scheduler, or its first worker, is waited for."""
_ASKED = 1.0
"""Seconds without an answer after which the scheduler is asked whether the worker is still there."""


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
    """Yield the cluster; at the end all tasks are cancelled, and the processes ended that did them.

    Raises `ClusterUnavailable` without Dask, if no scheduler answers at the address, and if it has no workers.
    """
    client = _client(address)
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ClusterUnavailable(f"The scheduler at {address!r} has had no worker for {_PATIENCE} s") from error
        with Cluster(client) as cluster:
            yield cluster
    finally:
        client.close(timeout=_PATIENCE)


class Cluster(contextlib.ExitStack):
    """The workers of a cluster, which do tasks in processes beside them until the block ends."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client

    @property
    def threads(self) -> dict[str, int]:
        """How many threads each worker has that the scheduler has now, by its address."""
        return dict(sorted(self._client.nthreads().items()))

    def executor(
        self,
        prepare: Callable[[], AbstractContextManager[Executor]],
        *,
        worker: str | None = None,
        alias: str | None = None,
        modules: Collection[str] = (),
    ) -> Executor:
        """Return an executor whose tasks are done by those of ``prepare``, which is picklable.

        A process enters that context for each thread of the cluster, or one process beside this ``worker``. It leaves
        the context when the cluster's block ends, when a task has broken the executor, or when the cluster or this
        process is gone. A task raises ``BrokenExecutor`` if its process is lost, or its ``worker``; without one,
        another worker does the tasks of a worker that is lost. It raises `ClusterUnavailable` if the process would run
        other code, or on other versions: see `describe_code` on ``alias`` and ``modules``.
        """
        # Pickled apart, so that a worker compares its code before it loads what other code could not.
        start = pickle.dumps((describe_code(alias, modules), alias, modules, pickle.dumps(prepare)))
        executor = _DaskExecutor(self._client, start, size=1 if worker else sum(self.threads.values()), worker=worker)
        self.callback(executor.close)
        return executor


def _client(address: str) -> Any:
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port
    except ImportError as error:
        raise ClusterUnavailable('A cluster needs Dask: pip install "django-lockstep-lab[cluster]"') from error
    client: Any = Client.__new__(Client)
    try:
        # Before the client begins, which has threads and connections to end.
        get_address_host_port(address, strict=True)
        client.__init__(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            # A client that could not connect counts as closed, and its thread goes on.
            client._loop_runner.stop()
        raise ClusterUnavailable(f"No scheduler of Dask answers at {address!r}: {error}") from error
    return client


class _DaskExecutor(Executor):
    """Sends what is pickled already: a worker of Dask has not set Django up, and could not load it."""

    def __init__(self, client: Any, start: bytes, *, size: int, worker: str | None) -> None:
        self._client = client
        self._start = start
        self._workers = None if worker is None else [worker]
        self._job = secrets.token_hex(8)
        # Dask forgets the task of a future that nobody holds.
        self._sent: set[Any] = set()
        # Not callbacks of Dask, which share a thread: an answer that was lost with its worker never comes.
        self._threads = ThreadPoolExecutor(size + 1)

    def submit(self, function: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Have a worker call the function. Raises ``BrokenExecutor`` if the scheduler cannot be reached."""
        task = pickle.dumps((function, args, kwargs))
        try:
            # Not pure: Dask would give one answer to tasks that are alike.
            sent = self._client.submit(relay.pass_on, self._job, self._start, task, pure=False, workers=self._workers)
        except Exception as error:
            raise BrokenExecutor(f"the scheduler cannot be reached: {error}") from error
        self._sent.add(sent)
        return self._threads.submit(self._answer, sent)

    def close(self) -> None:
        """Cancel all tasks, and end the processes that did them."""
        # A scheduler that is gone cannot pass it on: then the processes end because they have nothing to do.
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._sent))
            # One that went away would be waited for; the processes beside it have ended with it.
            if self._is_there():
                self._client.run(relay.close, self._job, on_error="ignore", workers=self._workers)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_there(self) -> bool:
        """Whether the scheduler has the worker, if it is for a certain one."""
        return self._workers is None or self._workers[0] in self._client.nthreads()

    def _answer(self, sent: Any) -> Any:
        """Return what the task has returned, or raise what it has raised."""
        try:
            worked, answer = pickle.loads(self._reply(sent))  # noqa: S301 - from a process that was asked for it
        finally:
            self._sent.discard(sent)
        if not worked:
            raise answer
        return answer

    def _reply(self, sent: Any) -> bytes:
        while True:
            try:
                reply: bytes = sent.result(timeout=_ASKED)
            except TimeoutError:
                # The scheduler keeps a task for a worker that went away.
                if not self._is_there():
                    raise BrokenExecutor("the cluster does not know it any more") from None
            except BrokenExecutor:
                raise
            except Exception as error:  # lost with a worker, or cancelled
                raise BrokenExecutor(f"{type(error).__name__}: {error}") from error
            else:
                return reply
