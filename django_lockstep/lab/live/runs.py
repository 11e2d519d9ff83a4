"""Starts runs."""

from __future__ import annotations

import pickle
import secrets
import threading
from collections.abc import Sequence

from django.db import connection

from django_lockstep.lab import conf
from django_lockstep.lab.isolated import START, database_names, start_python
from django_lockstep.lab.live.process import LiveRequest
from django_lockstep.lab.live.races import RacesRequest
from django_lockstep.lab.live.store import LiveRun, Store
from django_lockstep.lab.page_runs import MAX_SCHEDULES, TIMEOUT, RunRefused, exclusive_run, require_runs

__all__ = ["start_races", "start_run"]

_MAIN = "import django; django.setup(); from django_lockstep.lab.live.process import main; main()"


def start_races(store: Store, names: Sequence[str]) -> None:
    """Start exploring the registered races of these names. Raises as `start_run`."""
    request = RacesRequest(races=tuple(conf.races()), names=tuple(names), max_schedules=MAX_SCHEDULES, timeout=TIMEOUT)
    start_run(store, request)


def start_run(store: Store, request: LiveRequest) -> None:
    """Start what is requested in a new process.

    Raises `RunRefused` where the settings or the database do not allow it, and while a page runs something.
    """
    require_runs()
    if (run := store.run()) is not None and run.active:
        raise RunRefused.busy()
    with exclusive_run(connection):  # tried here, so that most refusals come at once; the process takes it for itself
        pass
    token = secrets.token_hex(8)
    store.create()
    store.watch()
    store.publish(LiveRun(token=token, state="starting", progress=request.initial), for_seconds=START)
    # Ctrl-C is for the server; then nobody watches.
    process = start_python(_MAIN, start_new_session=True)
    given = pickle.dumps((token, store, request, database_names()))
    # Somebody has to take note of its end, or it stays as a zombie for as long as this process lives.
    threading.Thread(target=process.communicate, args=[given], daemon=True).start()
