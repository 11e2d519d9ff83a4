"""The bank's settings for benchmarks: a data folder of their own, and nothing that slows statements down."""

import os
from importlib.util import find_spec

from bank.settings import *  # noqa: F403
from bank.settings import BASE_DIR, DATABASES, EMBEDDED, INSTALLED_APPS

if find_spec("db_mutex") is not None:
    INSTALLED_APPS = [*INSTALLED_APPS, "db_mutex"]

DEBUG = False
SECRET_KEY = "benchmarks serve nobody"  # noqa: S105
EMBEDDED_BENCHMARKS = {
    **EMBEDDED,
    "NAME": "benchmarks",
    "USER": "postgres",  # ALTER SYSTEM
    "PGDATA": os.environ.get("BANK_PGDATA") or BASE_DIR / ".bank" / "benchmarks",
}
if not os.environ.get("DATABASE_URL"):
    DATABASES = {"default": EMBEDDED_BENCHMARKS}
"""Where benchmarks make a database of their own: on ``DATABASE_URL``'s server, or else on an embedded one."""
