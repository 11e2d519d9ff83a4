"""The settings of `run_exclusive` in tests: on the test's database, with the few apps that start in half the time."""

from tests.django_lockstep.lab.live_settings import *  # noqa: F403

INSTALLED_APPS = ["django_lockstep", "django_lockstep.leases"]
