"""``manage.py simulate --store``: stories of real worker processes, in the demo's settings."""

import json
import subprocess
from typing import Any

from accounts.contrib.dynamodb.entries import LEDGER
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.processes import assert_clean, run


def simulate(options: dict[str, Any], *arguments: str) -> "subprocess.CompletedProcess[str]":
    demo = {"DJANGO_SETTINGS_MODULE": "bank.settings", "DYNAMODB_TABLE": options["TABLE"]}
    url = options["ENDPOINT_URL"]
    return run("-X", "dev", "manage.py", "simulate", "--store", "dynamodb", *arguments, **demo, DYNAMODB_URL=url)


def test_exactly_one_withdrawal_passes_in_every_round_and_naive_loses(
    options: dict[str, Any], dynamodb: DynamoStore
) -> None:
    done = simulate(options, "--scenario", "overdraft", "--runs", "60", "--check", "--format", "json")
    assert_clean(done)
    report = json.loads(done.stdout)
    assert report["environment"]["database"] == f"DynamoDB at {options['ENDPOINT_URL']}"
    naive, *safe = report["strategies"]
    assert (naive["strategy"], naive["verdict"]) == ("naive", "overdrawn")
    assert [(row["strategy"], row["verdict"], row["runs"]) for row in safe] == [
        ("conditional", "correct", 60),
        ("transact", "correct", 60),
    ]
    for row in safe:
        assert {(ending["balance"], *ending["passed"]) for ending in row["endings"]} <= {
            ("-300.00", "withdraw 400"),
            ("-200.00", "withdraw 300"),
        }
    assert list(dynamodb.keys(LEDGER)) == []


def test_what_is_kept_stays_and_is_right(options: dict[str, Any], dynamodb: DynamoStore) -> None:
    arguments = ("--scenario", "lost-update", "--runs", "3", "--strategies", "transact", "--keep")
    done = simulate(options, *arguments)
    assert_clean(done)
    printed = " ".join(done.stdout.split())
    assert "Kept: the accounts whose names begin with simulate-" in printed
    assert "3 x 120.00, both" in printed
    assert len(list(dynamodb.keys(LEDGER))) == 3 * 3


def test_a_missing_table_is_named(options: dict[str, Any]) -> None:
    done = simulate({**options, "TABLE": "missing"}, "--scenario", "overdraft")
    assert done.returncode == 1
    assert "manage.py create_stores makes the table" in done.stderr
    assert "Traceback" not in done.stderr
