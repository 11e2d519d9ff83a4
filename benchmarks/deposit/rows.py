"""The rows that every contender works on: created before each run, and checked after it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account, Entry

OPENING = Decimal("1000.00")
"""The balance that every account begins with."""
AMOUNT = Decimal("1.00")
"""The amount of every deposit: always the same, so that the balance shows the number of deposits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The contents of the tables after a run, compared with the deposits that the contender reported."""

    reported: int
    """Deposits that succeeded, as the contender counts them."""
    booked: int
    """Deposits that are in the balances."""
    entries: int | None
    """Entries; None where the contender's work has none."""
    broken: int
    """Entries that do not follow from the previous one of the same account."""
    versions: int
    """By how much the versions increased."""

    @property
    def verdict(self) -> str:
        """``correct``, or the first error found."""
        if self.reported != self.booked:
            return f"WRONG: {self.reported - self.booked:,} of {self.reported:,} deposits not in the balance"
        if self.entries is not None and self.entries != self.reported:
            return f"WRONG: {self.entries:,} entries of {self.reported:,} deposits"
        if self.broken:
            return f"WRONG: {self.broken:,} entries do not follow from the one before"
        if self.versions != self.reported:
            return f"WRONG: versions moved {self.versions:,} times in {self.reported:,} deposits"
        return "correct" if self.reported else "NOTHING DONE"


def reset_accounts(rows: int) -> None:
    """Empty both tables and create accounts 1 to ``rows``, and one more for warm-up."""
    user, _ = get_user_model()._base_manager.get_or_create(username="benchmark")
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {_table(Account)}, {_table(Entry)} RESTART IDENTITY CASCADE")
        cursor.execute(
            f"INSERT INTO {_table(Account)} (user_id, balance, overdraft_limit, updated_at) "
            "SELECT %s, %s, 0, now() FROM generate_series(1, %s)",
            [user.pk, OPENING, rows + 1],
        )
        # So that all contenders start with the same statistics and visibility map.
        cursor.execute(f"VACUUM (ANALYZE) {_table(Account)}, {_table(Entry)}")


def check(*, rows: int, reported: int, with_entries: bool) -> CheckResult:
    """Compare balances, versions and entries with the deposits that were reported as successful.

    Of the accounts those up to ``rows`` count.
    """
    account, entry = _table(Account), _table(Entry)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT sum(balance - %s) / %s, sum(version - 1) FROM {account} WHERE id <= %s",
            [OPENING, AMOUNT, rows],
        )
        booked, versions = cursor.fetchone()
        # Each entry against the one before it: sums would hide two faults that cancel out.
        cursor.execute(_CHAIN.format(entry=entry), {"opening": OPENING, "rows": rows})
        entries, broken = cursor.fetchone()
    return CheckResult(
        reported=reported,
        booked=int(booked),
        entries=int(entries) if with_entries else None,
        broken=int(broken),
        versions=int(versions),
    )


_CHAIN = """
SELECT count(*), count(*) FILTER (WHERE balance_after <> before + amount OR version_after <> seen + 1)
FROM (SELECT amount, balance_after, version_after,
             lag(balance_after, 1, %(opening)s) OVER chain AS before, lag(version_after, 1, 1) OVER chain AS seen
      FROM {entry} WHERE account_id <= %(rows)s WINDOW chain AS (PARTITION BY account_id ORDER BY id)) AS entries
"""


def _table(model: Any) -> str:
    return connection.ops.quote_name(model._meta.db_table)
