"""Executors whose processes explore, each on a scratch database of its own: on this machine, or on a Dask cluster."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from django_lockstep.lab.explorer.errors import NotExplorable
from django_lockstep.lab.explorer.session import Learned
from django_lockstep.lab.explorer.tables.scratch import further_copies
from django_lockstep.lab.explorer.worker import WorkerConfig, start_worker
from django_lockstep.lab.workers.cluster import cluster_executor
from django_lockstep.lab.workers.errors import ClusterUnavailable
from django_lockstep.lab.workers.processes import process_context
from django_lockstep.lab.workers.same_code import describe_code, modules_of, require_same

__all__ = ["explorers_here", "explorers_on_cluster"]


@contextmanager
def explorers_here(config: WorkerConfig, size: int, learned: Learned) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of `play_branch` on this machine, and its size; each process has a database of its own."""
    with further_copies(size) as databases:
        context = process_context()
        queue = context.SimpleQueue()
        for names in databases:
            queue.put(names)
        executor = ProcessPoolExecutor(
            size, mp_context=context, initializer=start_worker, initargs=(config, learned, queue)
        )
        try:
            yield executor, size
        finally:
            # Killed, because a worker may be in a statement that does not end; its database is dropped anyway.
            for process in list((executor._processes or {}).values()):
                process.kill()
            executor.shutdown(cancel_futures=True)
            queue.close()


@contextmanager
def explorers_on_cluster(address: str, config: WorkerConfig, learned: Learned) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of `play_branch`, as `cluster_executor` does; the databases are dropped with the block.

    Raises `NotExplorable` if the cluster cannot be used, or if a worker would explore other code or on other versions.
    """
    alias, modules = config.options.database, modules_of(config.load())
    expected = describe_code(alias, modules)
    # Pickled apart, so that a worker compares its code before it loads what other code could not.
    prepare = functools.partial(_checked, pickle.dumps((config, learned)), expected, alias, modules)
    try:
        with cluster_executor(address, prepare) as given:
            yield given
    except ClusterUnavailable as error:
        raise NotExplorable(str(error)) from error


@contextmanager
def _checked(
    job: bytes, expected: Mapping[str, str], alias: str, modules: Sequence[str]
) -> Iterator[tuple[Executor, int]]:
    require_same(expected, describe_code(alias, modules))
    config, learned = pickle.loads(job)  # noqa: S301 - from the process that explores
    # On the server that the worker's own settings name: it need not be the one of that process.
    with explorers_here(config, 1, learned) as given:
        yield given
