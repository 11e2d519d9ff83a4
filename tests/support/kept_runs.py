"""What runs from pages have left, for all tests that look at the same run: each takes a process and a database."""

from collections.abc import Callable

from django_lockstep.lab.pages.store import open_store

_KEPT: dict[str, dict[str, bytes]] = {}
"""The files of the store after the first run of each name."""


def run_once(name: str, run: Callable[[], object]) -> None:
    """Have the results of a run in the store: those of this process's first one, which ``run`` starts and awaits."""
    store = open_store()
    if (files := _KEPT.get(name)) is None:
        run()
        _KEPT[name] = {file.name: file.read_bytes() for file in store.folder.iterdir()}
        return
    store.create()
    for file, content in files.items():
        (store.folder / file).write_bytes(content)
