"""The documentation shows the statements as they are."""

import re
from pathlib import Path

import pytest

from accounts.contrib.compiled.runner import StatementRunner
from accounts.models import Account

SHOWN = re.findall(
    r"```sql\n(.*?)```", (Path(__file__).parents[4] / "docs" / "measure" / "speed.md").read_text(), re.DOTALL
)


def words(sql: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\(\s+", "(", sql)).strip()


@pytest.mark.django_db
def test_they_are_what_is_sent() -> None:
    statements = StatementRunner(Account, "default").statements
    sent = [statements.lock_and_add["plus", "queue"], statements.write[True], statements.add["minus"]]
    assert [words(sql) for sql in SHOWN] == [words(each.sql) for each in sent]
