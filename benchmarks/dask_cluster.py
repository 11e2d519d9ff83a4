"""A Dask cluster in processes of its own: Dask leaves connections of a cluster that has ended to the garbage collector.

``python -m benchmarks.dask_cluster`` prints the scheduler's address, and ends when its standard input does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["cluster_of_two"]


@contextmanager
def cluster_of_two() -> Iterator[str]:
    """Yield the address of a scheduler with two workers, each a process with one thread."""
    command = [sys.executable, "-m", "benchmarks.dask_cluster"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # noqa: S603 - this module, in the interpreter at hand
        address = process.stdout.readline().strip() if process.stdout else ""
        if not address:
            raise RuntimeError(f"the cluster ended with {process.wait()}")
        yield address


def _serve() -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:  # type: ignore[no-untyped-call]
        sys.stdout.write(f"{cluster.scheduler_address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _serve()
