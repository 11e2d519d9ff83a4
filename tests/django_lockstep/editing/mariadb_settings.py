"""The settings of the tests, on the MariaDB server behind a socket."""

import os

from tests.settings import *  # noqa: F403

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "lockstep",
        "USER": "root",
        "OPTIONS": {"unix_socket": os.environ["MARIADB_SOCKET"], "charset": "utf8mb4"},
        "TEST": {"CHARSET": "utf8mb4"},
    }
}
