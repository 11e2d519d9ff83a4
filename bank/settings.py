"""Settings of the demo bank; everything a deployment changes comes from the environment (see .env.example).

Safe by default: without DJANGO_DEBUG, BANK_DEMO and BANK_LOCAL the settings pass ``manage.py check --deploy``.
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url

from bank.secret_key import read_or_create_key

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = os.environ.get("DJANGO_DEBUG", "0") == "1"
# `manage.py demo` alone lets everyone who reaches the server run races, and log in from this machine (`bank.login`).
BANK_DEMO = os.environ.get("BANK_DEMO", "0") == "1"
# For this machine alone, as the container's port is: over plain HTTP, and staff may run races. Neither needs DEBUG,
# whose pages of errors show the environment, DATABASE_URL among it.
LOCAL = DEBUG or BANK_DEMO or os.environ.get("BANK_LOCAL", "0") == "1"
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or read_or_create_key(BASE_DIR / ".bank" / "secret_key")
ALLOWED_HOSTS = os.environ.get("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")
CSRF_TRUSTED_ORIGINS = [origin for origin in os.environ.get("DJANGO_CSRF_TRUSTED_ORIGINS", "").split(",") if origin]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "ninja",  # serves the API's documentation pages locally instead of from a CDN
    "django_htmx",
    "django_lockstep",
    "django_lockstep.editing",
    "django_lockstep.idempotency",
    "django_lockstep.monitor",
    "django_lockstep.lab",
    "django_lockstep.leases",
    "django_lockstep.stores",
    "accounts",
    "accounts.contrib.compiled",
    "bank",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_lockstep.http.ConcurrencyMiddleware",
    "bank.policy.content_policy",
]

ROOT_URLCONF = "bank.urls"
WSGI_APPLICATION = "bank.wsgi.application"
ASGI_APPLICATION = "bank.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "bank" / "templates"],  # before those of the apps
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

EMBEDDED: dict[str, Any] = {
    "ENGINE": "bank.embedded",
    "NAME": "bank",
    "PGDATA": os.environ.get("BANK_PGDATA") or BASE_DIR / ".bank" / "pgdata",
    # Safe, because there is no connection pooler that might not support prepared statements.
    "OPTIONS": {"prepare_threshold": 0},
}
DATABASE_URL = os.environ.get("DATABASE_URL")
DATABASES = {"default": dj_database_url.parse(DATABASE_URL) if DATABASE_URL else EMBEDDED}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# For `reconcile --store dynamodb`: a table, and the address of a server other than AWS.
LOCKSTEP_STORES: dict[str, dict[str, Any]] = {}
if DYNAMODB_TABLE := os.environ.get("DYNAMODB_TABLE"):
    LOCKSTEP_STORES["dynamodb"] = {"TABLE": DYNAMODB_TABLE, "ENDPOINT_URL": os.environ.get("DYNAMODB_URL")}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LOGIN_URL = "admin:login"

LANGUAGE_CODE = "en-us"
LANGUAGES = [("en", "English"), ("ja", "日本語"), ("ar", "العربية")]  # those that everything here is translated into
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / ".bank" / "static"

# Request errors, with tracebacks, and warnings go to stderr, with or without DEBUG.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"django": {"handlers": [], "level": "INFO" if DEBUG else "WARNING"}},
}

SECURE_SSL_REDIRECT = not LOCAL
SECURE_HSTS_SECONDS = 0 if LOCAL else 31_536_000
SECURE_HSTS_INCLUDE_SUBDOMAINS = not LOCAL
SECURE_HSTS_PRELOAD = not LOCAL
SESSION_COOKIE_SECURE = not LOCAL
CSRF_COOKIE_SECURE = not LOCAL

# Only the demo uses these tables, so simulate may apply migrations itself.
LOCKSTEP_LAB_MIGRATES = True

LOCKSTEP_LAB_RACES = ["bank.races.RACES", "accounts.races.ready_made.RACES"]
# The shop of the finder's tests, in which races were hidden, recorded with its settings and a DATABASE_URL by
#   pytest -c /dev/null --rootdir . --confcutdir tests/testapps/seeded_shop -p django_lockstep.lab.pytest_plugin
#   --find-races --race-record bank/found_races.jsonl tests/testapps/seeded_shop/suite
LOCKSTEP_LAB_FOUND_RACES = BASE_DIR / "bank" / "found_races.jsonl"
# Where the pages' runs say how far they are, beside the data of the embedded server.
LOCKSTEP_LAB_LIVE_FOLDER = Path(EMBEDDED["PGDATA"]).parent / "live"
LOCKSTEP_LAB_RUNS_IN_PAGES = LOCAL
LOCKSTEP_LAB_PUBLIC = BANK_DEMO
