"""The figures of Django's idioms and ours."""

from fnmatch import fnmatch
from typing import Any

import pytest

from accounts.models import Account, Entry
from benchmarks import idioms
from benchmarks.deposit.rows import AMOUNT, OPENING
from benchmarks.suite import Options

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("pattern", ["lock*", "*update()", "save()*", "create()", "deposit, *", "deposit by*", "load*"])
def test_both_do_the_work_that_is_measured(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idioms, "LOADED", 20)
    monkeypatch.setattr(idioms, "_SLICE", 0.01)
    section = idioms.SUITE.run(Options(rounds=1, seconds=1, only=(pattern,)), say=lambda line: None)
    row: Any
    (row,) = section.tables[0].rows
    name, stock, ours, ratio, lowest, highest, alone, _floor = row
    assert fnmatch(name, pattern)
    assert min(stock, ours, alone) > 0
    assert lowest <= ratio <= highest

    account, entries = Account.objects.get(pk=1), Entry.objects.count()
    assert (entries > 0) is pattern.startswith(("create", "deposit"))
    assert account.balance == (OPENING + entries * AMOUNT if pattern.startswith("deposit") else OPENING)
    assert (account.version > 1) is (pattern not in {"lock*", "create()", "load*"})
