"""The demo's settings, and of its apps those of leases alone: its server is made and migrated in a second."""

from bank.settings import *  # noqa: F403

INSTALLED_APPS = ["django_lockstep", "django_lockstep.leases"]
