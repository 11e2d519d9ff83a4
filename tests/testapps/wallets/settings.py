"""The settings of commands that tests start, with the wallets."""

from tests.django_lockstep.lab.live_settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as TEST_APPS

INSTALLED_APPS = [*TEST_APPS, "tests.testapps.wallets"]
