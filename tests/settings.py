"""The bank's settings as the tests run them: plain HTTP, cheap passwords."""

from bank.settings import *  # noqa: F403
from bank.settings import DATABASES
from bank.settings import INSTALLED_APPS as BANK_APPS

INSTALLED_APPS = [
    *BANK_APPS,
    "concurrency",  # templates of its admin, which ours is compared with; no room of the library needs it
    "tests.testapps.press",
    "tests.testapps.shop",
    "tests.testapps.reports",
    "tests.testapps.purses",
]
# Tests put the database back as they found it, append-only tables as well, and make roles.
if DATABASES["default"]["ENGINE"] == "bank.embedded":
    DATABASES["default"]["USER"] = "postgres"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SECURE_SSL_REDIRECT = False
SESSION_COOKIE_SECURE = False
CSRF_COOKIE_SECURE = False
