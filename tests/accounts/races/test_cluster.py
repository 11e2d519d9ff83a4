"""One load from two machines of a cluster: the same figures as from one, of one database."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Account
from tests.accounts.races.commands import sessions
from tests.support.cluster import Cluster

pytestmark = pytest.mark.django_db(transaction=True)


def simulated(**options: Any) -> dict[str, Any]:
    out = io.StringIO()
    call_command("simulate", format="json", stdout=out, stderr=io.StringIO(), **options)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def test_a_load_from_two_machines_is_one_load(cluster: Cluster) -> None:
    names = ["naive", "pessimistic"]
    report = simulated(
        cluster=cluster.address, strategies=names, engine="plain", workers=4, operations=400, rounds=2, check=True
    )
    rows = {row["strategy"]: row for row in report["strategies"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {"naive": "lost", "pessimistic": "correct"}
    for row in rows.values():
        assert (row["workers"], row["operations"], row["worker_failures"]) == (4, 400, [])
    (note,) = (note for note in report["notes"] if note.startswith("Workers: "))
    assert note.count("2 on tcp://127.0.0.1:") == 2
    assert not Account.objects.exists()
    assert sessions() == 0


def test_a_cluster_that_does_not_answer_is_named_before_anything_is_written() -> None:
    with pytest.raises(CommandError, match="No scheduler of Dask answers at 'nowhere'"):
        simulated(cluster="nowhere", strategies=["pessimistic"])
    assert not Account.objects.exists()
