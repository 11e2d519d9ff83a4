"""Imported once, by the process that workers are forked off: it sets Django up, so that no worker has to.

Nothing else may import this module.
"""

import contextlib
import gc
import importlib

import django
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

# Without settings in the environment every worker fails, and says so.
with contextlib.suppress(ImproperlyConfigured):
    django.setup()
    importlib.import_module("django_lockstep.lab.simulator.measure")  # what workers are told to do
    # An app may have connected while it was set up, and processes must not share a connection.
    connections.close_all()
# Collections in the workers leave alone what they share, which then stays shared.
gc.freeze()
