"""Starts the runs of pages, one at a time: each in a process of its own, on scratch databases.

A scratch database replaces the database of its aliases in the whole process. A web process cannot use one: its other
threads would answer requests from it, and its caches, such as Django's of content types, would keep keys from it.
"""

from __future__ import annotations

import os
import pickle
import secrets
import subprocess
import sys
import threading

from django.db import connection, connections

from django_lockstep.lab import conf
from django_lockstep.lab.pages.process import LiveRequest, RunRefused, exclusive_run
from django_lockstep.lab.pages.store import LiveRun, Store

__all__ = ["start_run"]

_START = 45.0
"""Seconds until a run that says nothing has died: the first one migrates the scratch database."""
_MAIN = "import django; django.setup(); from django_lockstep.lab.pages.process import main; main()"


def start_run(store: Store, request: LiveRequest) -> None:
    """Start what is requested in a new process.

    Raises `RunRefused` where the settings or the database do not allow it, and while a page runs something.
    """
    if not conf.runs_in_pages():
        raise RunRefused("Races do not run from this page: LOCKSTEP_LAB_RUNS_IN_PAGES is off.", status=403)
    if (run := store.run()) is not None and run.active:
        raise RunRefused.busy()
    with exclusive_run(connection):  # tried here, so that most refusals come at once; the process takes it for itself
        pass
    token = secrets.token_hex(8)
    store.create()
    store.watch()
    store.publish(LiveRun(token=token, state="starting", progress=request.initial), for_seconds=_START)
    process = _start_python(_MAIN)
    # The databases' names, which under a test runner are not those of the settings.
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    message = pickle.dumps((token, store, request, names))
    # The end must be waited for, or the process stays as a zombie for as long as this one lives.
    threading.Thread(target=process.communicate, args=[message], daemon=True).start()


def _start_python(code: str) -> subprocess.Popen[bytes]:
    """Start this interpreter with the code, and a pipe to its standard input."""
    # A new interpreter, not a fork: a web process has threads and open connections, which must not be shared. A session
    # of its own: Ctrl-C is for the server, and then no page watches the run.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.Popen(  # noqa: S603 - code of the lab
        command, stdin=subprocess.PIPE, env=environment, start_new_session=True
    )
