"""Settings for Django's own tests, in which every manager and query set is one whose statements are compiled once."""

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import django
from django.db import models
from django.db.models import base, manager, options

# The package itself imports models, which no settings can.
_package = ModuleType("django_lockstep.locking")
_package.__path__ = [str(Path(__file__).parents[2] / "django_lockstep" / "locking")]
sys.modules[_package.__name__] = _package
_shapes = importlib.import_module("django_lockstep.locking.shapes")

_Manager: Any = type("Manager", (manager.BaseManager.from_queryset(_shapes.CompiledQuerySet),), {})
_Manager.__module__ = manager.__name__
_patched: Any
for _patched in (models, base, manager, options):
    _patched.Manager = _Manager
_patched = models
_patched.QuerySet = _shapes.CompiledQuerySet

_SERVER: dict[str, Any] = json.loads(os.environ["DJANGOS_SERVER"])
DATABASES = {alias: {**_SERVER, "TEST": {"NAME": f"djangos_{alias}_{os.getpid()}"}} for alias in ("default", "other")}
SECRET_KEY = "django's tests"
if django.VERSION < (6, 0):
    DEFAULT_AUTO_FIELD = "django.db.models.AutoField"  # what its tests expect; 6.0 has a default
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = False
