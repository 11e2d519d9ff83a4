"""Real processes contend for a lease, count without one, and are stopped, on DynamoDB."""

import json
import os
import signal
from typing import Any

from django_lockstep.leases import lease
from django_lockstep.stores import DynamoStore, Put
from tests.django_lockstep.leases.test_processes import Program, assert_never_overlap, running
from tests.django_lockstep.stores.contention import FREE, GUARDED, contend

SECONDS = float(os.environ.get("STORES_CONTENTION_SECONDS", "4"))
"""For how long the eight processes contend; 60 for the long run."""


class StoreProgram(Program):
    module = "tests.django_lockstep.stores.programs"


def test_eight_processes_lose_and_double_nothing(dynamodb: DynamoStore, dynamodb_table: dict[str, Any]) -> None:
    for key in (GUARDED, FREE):
        assert dynamodb.put_if_absent(key, {"n": 0})
    tallies = contend(dynamodb_table, workers=8, seconds=SECONDS)
    assert_never_overlap(span for tally in tallies for span in tally.spans)
    items = [dynamodb.read(key) for key in (GUARDED, FREE)]
    written = [sum(tally.guarded for tally in tallies), sum(tally.optimistic for tally in tallies)]
    assert [item.attributes["n"] for item in items if item] == written
    assert min(written) > 0


def test_a_holder_that_is_stopped_in_the_middle_of_a_guarded_write_has_written_nothing(
    dynamodb: DynamoStore, dynamodb_table: dict[str, Any]
) -> None:
    with running(StoreProgram(json.dumps(dynamodb_table), "2")) as stopped:
        token = stopped.answer()["token"]
        stopped.process.send_signal(signal.SIGSTOP)
        # Not before the stopped holder's ttl is over.
        with lease("k", 60, wait=60, store="tested") as successor:
            assert successor.token > token
            stopped.process.send_signal(signal.SIGCONT)
            stopped.send("go on")
            assert stopped.answer()["failed"]
            assert dynamodb.read("written") is None
            assert dynamodb.transact([Put("written", {"by": "successor"})], guards=[successor])
