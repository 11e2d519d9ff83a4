"""The bank's settings as the tests run them: plain HTTP, cheap passwords."""

import os
from pathlib import Path

# Each worker of pytest-xdist has an embedded server of its own, and the programs that it starts use the same one.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.setdefault("BANK_PGDATA", str(Path(__file__).resolve().parent.parent / ".bank" / worker))

from bank.settings import *  # noqa: F403
from bank.settings import BASE_DIR, DATABASES
from bank.settings import INSTALLED_APPS as BANK_APPS

INSTALLED_APPS = [
    *BANK_APPS,
    "tests.testapps.press",
    "tests.testapps.shop",
    "tests.testapps.purses",
    "tests.testapps.seeded_club",
    "tests.testapps.seeded_shop.racing",
    "tests.testapps.seeded_shop.correct",
]
# The tables of the test apps have no history: they are made as the models are now.
MIGRATION_MODULES = dict.fromkeys(
    ("press", "shop", "purses", "racing", "correct", "seeded_club"), "tests.testapps.migrations"
)
# Tests put the database back as they found it, append-only tables as well, and make roles.
if DATABASES["default"]["ENGINE"] == "bank.embedded":
    DATABASES["default"]["USER"] = "postgres"
LOCKSTEP_LAB_LIVE_FOLDER = BASE_DIR / ".bank" / f"live-{worker or 'main'}"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}  # Django 6.1 and later
# Walks beside each of thousands of explorations would take minutes; the tests of the audit ask for it.
LOCKSTEP_LAB_AUDIT = 0
SECURE_SSL_REDIRECT = False
SESSION_COOKIE_SECURE = False
CSRF_COOKIE_SECURE = False
# Nothing that a test commits has to survive a crash: a commit does not wait for the disk.
DATABASES["default"].setdefault("OPTIONS", {})["options"] = "-c synchronous_commit=off"
