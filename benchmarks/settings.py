"""The bank's settings for benchmarks: a separate data folder, the compiled engine, and no logging of statements."""

import os
from importlib.util import find_spec

from bank.settings import *  # noqa: F403
from bank.settings import BASE_DIR, DATABASES, EMBEDDED, INSTALLED_APPS

if find_spec("db_mutex") is not None:
    INSTALLED_APPS = [*INSTALLED_APPS, "db_mutex"]

DEBUG = False
ACCOUNTS_ENGINE = "compiled"
SECRET_KEY = "benchmarks serve nobody"  # noqa: S105
EMBEDDED_BENCHMARKS = {
    **EMBEDDED,
    "NAME": "benchmarks",
    "USER": "postgres",  # ALTER SYSTEM
    "PGDATA": os.environ.get("BANK_PGDATA") or BASE_DIR / ".bank" / "benchmarks",
}
if not os.environ.get("DATABASE_URL"):
    DATABASES = {"default": EMBEDDED_BENCHMARKS}
"""The server on which benchmarks create their database: ``DATABASE_URL``, otherwise an embedded one."""
