"""Candidates tried beside the workers of a cluster, one of which is lost in the middle."""

import os
import signal
from pathlib import Path

import pytest
from django.db import connection

from django_lockstep.lab.finder.findings import Findings
from tests.django_lockstep.lab.finder.test_find_races import FEW, RACING
from tests.support.cluster import Cluster
from tests.support.processes import ROOT
from tests.support.seeded_shop import copy_shop, database_url, run_suite, start_suite

RECORD = "races.jsonl"


@pytest.fixture(scope="module")
def shop(shared_cluster: Cluster, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, in whose folder two workers were started."""
    folder = copy_shop(tmp_path_factory.mktemp("shop"))
    for _ in range(2):
        shared_cluster.start_worker(
            folder=folder,
            DJANGO_SETTINGS_MODULE="seeded_shop.settings",
            DATABASE_URL=database_url(),
            PYTHONPATH=os.pathsep.join([str(folder), str(ROOT)]),
        )
    return folder


def test_a_worker_that_is_lost_takes_nothing_with_it(shared_cluster: Cluster, shop: Path) -> None:
    options = ("--find-races", FEW, f"--race-cluster={shared_cluster.address}", "--race-record", RECORD)
    with start_suite(shop, *options, url=database_url()) as process:
        assert process.stdout
        assert any(line.startswith("confirmed: ") for line in process.stdout)
        shared_cluster.workers[0].kill()
        printed = process.stdout.read()
    assert process.returncode == 1, printed
    findings = Findings.on(shop / RECORD)
    confirmed = {it.candidate.unit for it in findings.in_order() if it.verdict == "confirmed"}
    racing = {unit for unit in RACING if unit.split("/")[1:2] in (["coupons"], ["articles"], ["bookings"], ["wishes"])}
    assert confirmed == racing, printed
    assert findings.undecided() == []
    assert sorted(path.name for path in shop.glob(f"{RECORD}*.log")) == [f"{RECORD}.2.log", f"{RECORD}.log"]


@pytest.mark.django_db
def test_an_interrupted_search_leaves_no_database(shared_cluster: Cluster, shop: Path) -> None:
    options = ("--find-races", FEW, f"--race-cluster={shared_cluster.address}", "--race-record", "interrupted.jsonl")
    with start_suite(shop, *options, url=database_url()) as process:
        assert process.stdout
        assert any(line.startswith("confirmed: ") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        printed = process.stdout.read()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    findings = Findings.on(shop / "interrupted.jsonl")
    assert 0 < len(findings.in_order()) < len(findings.candidates)
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE '%\\_shop\\_races%'")
        assert cursor.fetchall() == []


def test_a_cluster_that_does_not_answer_is_named_before_any_test_is_run(django_db_setup: None, tmp_path: Path) -> None:
    done = run_suite(copy_shop(tmp_path), "--find-races", "--race-cluster=nowhere", url=database_url())
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --race-cluster: No scheduler of Dask answers at 'nowhere'" in done.stderr
