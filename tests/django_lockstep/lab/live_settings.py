"""The settings of commands that tests start: those of the tests, on the database that the test has."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["default"]["NAME"] = os.environ["LAB_TEST_DATABASE"]
