"""What pgbench prints and logs is understood."""

import pytest

from benchmarks.deposit.pgbench import SCRIPTS, PgbenchError, processed, tallies

OUTPUT = """\
transaction type: script.sql
number of clients: 2
number of transactions actually processed: 3
number of failed transactions: 0 (0.000%)
latency average = 0.250 ms
tps = 3987.241 (without initial connection time)
"""
LOG = """\
0 1 500 0 1700000000 000500
1 1 200 0 1700000000 000900
0 2 400 0 1700000000 001000
"""


def test_how_much_was_done_is_read_or_the_output_is_shown() -> None:
    assert processed(OUTPUT) == 3
    with pytest.raises(PgbenchError, match="no such thing"):
        processed("no such thing")


def test_the_log_is_a_tally_for_each_client() -> None:
    first, second = tallies(LOG.splitlines())
    assert (first.succeeded, second.succeeded) == (2, 1)
    assert (first.ended - first.started, second.ended - second.started) == (1_000_000, 200_000)
    assert first.latencies.largest == 500_000
    # A client begins when its first transaction does.
    assert second.started - first.started == 700_000


@pytest.mark.django_db
def test_every_script_is_complete_statements_of_the_real_tables() -> None:
    for script in SCRIPTS:
        lines = script.script()
        assert all(line.endswith((";", "\\gset")) for line in lines[1:])
        assert '"accounts_account"' in " ".join(lines)
        assert "{" not in " ".join(lines)
