"""A project that mounts the GraphQL API and does not have the package that it needs."""

import subprocess
import sys

from tests.support.pages import ROOT

PROGRAM = """
import sys

for name in ("graphql", "ninja", "strawberry", "strawberry_django"):
    sys.modules[name] = None

import django
from django.conf import settings

settings.configure(
    ROOT_URLCONF="django_lockstep.editing.graphql.urls",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_lockstep.editing"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

from django.core.checks import run_checks

print([message.id for message in run_checks(tags=["urls"])])
"""


def test_it_starts_and_a_check_says_what_is_missing() -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['lockstep.E061']\n", "")
