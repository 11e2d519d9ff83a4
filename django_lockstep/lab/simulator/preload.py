"""Imported once, by the process that workers are forked from: it sets Django up, so that no worker has to.

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
    importlib.import_module("django_lockstep.lab.simulator.load_task")  # the workers' task
    # An app may have connected while it was set up, and processes must not share a connection.
    connections.close_all()
# A garbage collection in a worker would write to every object, and so copy the memory that the workers share.
gc.freeze()
