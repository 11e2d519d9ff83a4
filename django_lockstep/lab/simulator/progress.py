"""A progress bar on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from django_lockstep.lab.simulator.trials import ProgressHook

__all__ = ["show_progress"]


@contextlib.contextmanager
def show_progress(
    terminal: TextIO | None, *, total: int, completed: Callable[[], int]
) -> Iterator[ProgressHook | None]:
    """Show what runs, and how many operations it has completed; yields what to call when the next of ``total`` begins.

    Yields None, and shows nothing, without a terminal.
    """
    if terminal is None:
        yield None
        return
    console = Console(file=terminal)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[done]}"))
    # Refreshed by the hook alone: a thread of its own would take time from the workers.
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("starting", total=total, done="")
        begun = iter(range(total + 1))

        def begin(name: str) -> Callable[[], None]:
            # The pool counts over all rounds, so that what it had counted before is subtracted.
            number, before = next(begun), completed()
            bar.update(task, description=f"{number + 1}/{total} {name}", completed=number)

            def tick() -> None:
                bar.update(task, done=f"{completed() - before:,} operations")
                bar.refresh()

            return tick

        bar.refresh()
        yield begin
