"""The settings of the club as a project of its own, whose database is in ``DATABASE_URL``."""

import os

import dj_database_url

SECRET_KEY = "not secret"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", f"{__package__}"]
MIGRATION_MODULES = {"seeded_club": "tests.testapps.migrations"}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
ROOT_URLCONF = f"{__package__}.urls"
DATABASES = {"default": dj_database_url.parse(os.environ["DATABASE_URL"])}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = True
