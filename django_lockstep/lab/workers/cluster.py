"""A Dask cluster behind the interface of the standard library's executors."""

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


@contextmanager
def cluster_executor(
    address: str,
    prepare: Callable[[], AbstractContextManager[Executor]],
    *,
    alias: str,
    modules: Collection[str],
) -> Iterator[tuple[Executor, int]]:
    """Yield an executor whose tasks are done by those of ``prepare``, which is picklable, and how many it does at once.

    Beside the workers a process enters that context for each thread of the cluster. It leaves the context at the end of
    the block, when a task has broken the executor, or when the cluster or this process is gone. A task raises
    ``BrokenExecutor`` if its process is lost; another worker does the tasks of a worker that is lost.

    Raises `ClusterUnavailable` without Dask, if no scheduler answers at the address, and if it has no workers; a task
    does if its process would run other code, or on other versions: see `describe_code` on ``alias`` and ``modules``.
    """
    client = _client(address)
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ClusterUnavailable(f"The scheduler at {address!r} has had no worker for {_PATIENCE} s") from error
        # Pickled apart, so that a worker compares its code before it loads what other code could not.
        start = pickle.dumps((describe_code(alias, modules), alias, modules, pickle.dumps(prepare)))
        threads = sum(client.nthreads().values())
        with contextlib.closing(_DaskExecutor(client, start, size=threads)) as executor:
            yield executor, threads
    finally:
        client.close(timeout=_PATIENCE)


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

    def __init__(self, client: Any, start: bytes, *, size: int) -> None:
        self._client = client
        self._start = start
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
            sent = self._client.submit(relay.pass_on, self._job, self._start, task, pure=False)
        except Exception as error:
            raise BrokenExecutor(f"the scheduler cannot be reached: {error}") from error
        self._sent.add(sent)
        return self._threads.submit(self._answer, sent)

    def close(self) -> None:
        """Cancel all tasks, and end the processes that did them."""
        # A scheduler that is gone cannot pass it on: then the processes end because they have nothing to do.
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._sent))
            self._client.run(relay.close, self._job, on_error="ignore")
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, sent: Any) -> Any:
        """Return what the task has returned, or raise what it has raised."""
        try:
            worked, answer = pickle.loads(sent.result())  # noqa: S301 - from a process that was asked for it
        except BrokenExecutor:
            raise
        except Exception as error:  # lost with a worker, or cancelled
            raise BrokenExecutor(f"{type(error).__name__}: {error}") from error
        finally:
            self._sent.discard(sent)
        if not worked:
            raise answer
        return answer
