"""Settings of a project with the packages installed, and of this library only the explorer."""

from importlib.util import find_spec

import dj_database_url

DATABASES = {"default": dj_database_url.config()}
SECRET_KEY = "benchmarks serve nobody, at no length that a signature would be refused for"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
_APPS = {
    "axes": "axes",
    "django_otp": "django_otp",
    "django_otp.plugins.otp_static": "django_otp",
    "django_tasks_db": "django_tasks_db",
    "oauth2_provider": "oauth2_provider",
    "procrastinate.contrib.django": "procrastinate",
    "rest_framework_simplejwt.token_blacklist": "rest_framework_simplejwt",
    "treebeard": "treebeard",
}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    *(app for app, module in _APPS.items() if find_spec(module) is not None),
    "benchmarks.packages",
]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "ENQUEUE_ON_COMMIT": False}}
SIMPLE_JWT = {"ROTATE_REFRESH_TOKENS": True, "BLACKLIST_AFTER_ROTATION": True}
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
SILENCED_SYSTEM_CHECKS = ["axes"]
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"axes": {"level": "CRITICAL"}}}
