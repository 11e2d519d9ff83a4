"""Names that a project chooses for its own account models get in nobody's way."""

import pytest

from tests.installed.conftest import Projects

MODELS = """
from django.db import models

from accounts.models import AbstractAccount, AbstractEntry


class {account}(AbstractAccount):
    pass


class {entry}(AbstractEntry):
    account = models.ForeignKey({account}, on_delete=models.PROTECT, related_name="entries")
"""


@pytest.mark.parametrize(
    ("app", "account", "entry"),
    [
        pytest.param("branch", "Account", "Entry", id="the same as ours"),
        pytest.param("international_subscriptions", "SubscriptionAccount", "SubscriptionAccountEntry", id="long ones"),
    ],
)
def test_the_checks_are_clean(start_project_with_accounts: Projects, app: str, account: str, entry: str) -> None:
    project = start_project_with_accounts(app)
    project.write(f"{app}_app/__init__.py")
    project.write(f"{app}_app/models.py", MODELS.format(account=account, entry=entry))
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "never_connected_to"}
    project.configure(apps=["django_lockstep", "accounts", f"{app}_app"], database=database)
    assert project.manage("check", "--fail-level", "DEBUG") == "System check identified no issues (0 silenced).\n"
