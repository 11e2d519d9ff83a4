"""What works behind PgBouncer in transaction mode, and what says that it does not."""

import json
from collections.abc import Iterator

import pytest

from accounts.models import Account, Entry
from tests.accounts.races.commands import manage
from tests.support.pgbouncer import pgbouncer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def url(transactional_db: None) -> Iterator[str]:
    with pgbouncer() as url:
        yield url


def test_a_simulation_works_and_leaves_nothing(url: str) -> None:
    strategies = ("--strategies", "naive,pessimistic,optimistic,conditional_update,serializable,advisory")
    done = manage(
        "simulate", *strategies, "--workers", "4", "--operations", "200", "--format", "json", DATABASE_URL=url
    )
    assert done.returncode == 0, done.stderr
    verdicts = {row["strategy"]: row["verdict"] for row in json.loads(done.stdout)["strategies"]}
    assert set(verdicts.values()) <= {"correct", "lost"}
    assert [name for name, verdict in verdicts.items() if verdict == "lost"] in ([], ["naive"])
    assert not Account.objects.exists()
    assert not Entry.objects.exists()


def test_an_exploration_says_at_once_that_it_needs_the_server_itself(url: str) -> None:
    done = manage(
        "explore", "lost-update:naive", "--database", "default", "--yes-this-database-is-mine", DATABASE_URL=url
    )
    assert done.returncode == 2
    assert "'default' is reached through a connection pooler" in done.stderr
    assert "Traceback" not in done.stderr
