"""Progress on a terminal; nothing anywhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO

from django_lockstep.lab.simulator.race import Watch

__all__ = ["progress"]


@contextlib.contextmanager
def progress(terminal: TextIO | None, *, races: int, beats: Callable[[], int]) -> Iterator[Watch | None]:
    """Show on the terminal which race is on and how many operations were done; yields None where it shows nothing.

    It shows nothing without a terminal, and where rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield None
        return
    if terminal is None:
        yield None
        return
    console = Console(file=terminal)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[done]}"))
    # Refreshed by the watch alone: a thread of its own would take time from the workers.
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("starting", total=races, done="")
        begun = iter(range(races + 1))

        def watch(name: str) -> Callable[[], None]:
            number, before = next(begun), beats()
            bar.update(task, description=f"{number + 1}/{races} {name}", completed=number)

            def tick() -> None:
                bar.update(task, done=f"{beats() - before:,} operations")
                bar.refresh()

            return tick

        bar.refresh()
        yield watch
