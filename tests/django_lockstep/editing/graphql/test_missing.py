"""A project that mounts the GraphQL API and does not have the package that it needs."""

from tests.support.processes import run

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
    done = run("-W", "error", "-c", PROGRAM)
    assert (done.stdout, done.stderr) == ("['lockstep.E061']\n", "")
