"""What a wrong end means: the texts by which the explorer says how it differs, sorted and told in a sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from textwrap import shorten

from django_lockstep.lab.explorer.tables.final_state import REMOVED
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined, parts_of

CONSEQUENCES = (
    "numbers lost or doubled",
    "rows doubled or lost",
    "other values",
    "other answers",
    "deadlocks",
    "server errors",
    "success instead of not found",
)
"""What a race does, the worst first; the last one is harmless if what two requests did was to delete."""
_IN_TABLES = CONSEQUENCES[: CONSEQUENCES.index("other answers")]
_NUMBER = re.compile(r"(?<!_id) -?\d+(?:\.\d+)? instead of -?\d+(?:\.\d+)?(?=,| in the row |$)")
"""Of a column that is not a foreign key's; dates and times begin with digits, too."""
_ANSWER = re.compile(r"\w+ returned ")
_ERROR = re.compile(r"\w+ (raised |returned status 5)")
_ACCEPTED = re.compile(r"\w+ returned (?:status [23].* instead of status 4|.* instead of raising )")
_GONE = re.compile(r"\w+ returned status [23].* instead of status 4(04|10)\b")
_MORE, _LESS = "one row more", "one row less"
_MOST_SHOWN = 100
"""Characters of a row that a sentence shows."""


def consequence_of(differences: Iterable[str]) -> str:
    """Return the worst of these differences in the words of `CONSEQUENCES`; empty without any."""
    return min(map(_consequence, differences), key=CONSEQUENCES.index, default="")


def _consequence(difference: str) -> str:
    if difference.startswith("Deadlock of "):
        return "deadlocks"
    # A status of 500 is an error that the project's own handler has answered.
    if _ERROR.match(difference):
        return "server errors"
    if _ANSWER.match(difference):
        return "success instead of not found" if _GONE.match(difference) else "other answers"
    if ": one row " in difference:
        return "rows doubled or lost"
    return "numbers lost or doubled" if _NUMBER.search(difference) else "other values"


def subjects_of(differences: Collection[str]) -> set[str]:
    """Return what a wrong end is about: the tables that differ, in any database; if none does, the consequences."""
    named = (text.partition(": ")[0].partition(",")[0] for text in differences if _consequence(text) in _IN_TABLES)
    return {name.rpartition(".")[2] for name in named} or set(map(_consequence, differences))


def of_now(differences: Collection[str]) -> list[str]:
    """Return the differences without those that say what changed rows were before."""
    tables = [text.partition(": ")[0] for text in differences]
    current = {table for table in tables if not table.endswith(REMOVED)}
    return [
        text
        for text, table in zip(differences, tables, strict=True)
        if table.removesuffix(REMOVED) not in current - {table}
    ]


def consequence_sentence(differences: Collection[str], *, kind: str, table: str, models: Mapping[str, str]) -> str:
    """Return the worst of these differences as a sentence.

    ``kind`` and ``table`` are the candidate's, ``models`` by table; one that is missing is named by its table.
    """
    # A value at the end of one may bring its own full stop along.
    now = [text.removesuffix(".") if text.endswith(".") else text for text in of_now(differences)]
    if not now:
        return ""
    # What is missing at the end is what the transaction that was ended would have written.
    deadlock = next((text for text in now if kind == "lock-order" and _consequence(text) == "deadlocks"), "")
    if deadlock:
        return joined([deadlock, ""], ".")
    is_elsewhere = table not in subjects_of(now)
    # A second row says more than what was counted in each of the two.
    more = [text for text in now if kind == "check-then-insert" and _MORE in text and table in subjects_of([text])]
    # An error says more than a row that was written before it, or because of it, such as one of a log.
    errors = [text for text in now if (more or is_elsewhere) and _consequence(text) == "server errors"]
    worst = min(errors or more or now, key=lambda text: CONSEQUENCES.index(_consequence(text)))
    if _consequence(worst) in _IN_TABLES:
        return _table_sentence(worst, differences, kind="" if is_elsewhere else kind, models=models)
    if _consequence(worst) == "server errors":
        return _("{end}: an error that no order of the two, one after the other, ends with.", end=worst)
    is_accepted = _consequence(worst) == "other answers" and _ACCEPTED.match(worst)
    if is_accepted:
        return _("Both succeed, but one of the two must be refused: {end}.", end=worst)
    return joined([worst, ""], ".")


def _table_sentence(worst: str, differences: Collection[str], *, kind: str, models: Mapping[str, str]) -> str:
    table, _colon, text = worst.partition(": ")
    model = models.get(table.removesuffix(REMOVED).rpartition(".")[2]) or table
    change, _comma, row = text.partition(", ")
    shown = f" ({shorten(row, _MOST_SHOWN, placeholder=' ...')})" if row else ""
    # A row that is changed counts twice: as it was, and as it is now.
    is_of_change = any(text.startswith(f"{table}{REMOVED}: {change}") for text in differences)
    if change == _MORE:
        if table.endswith(REMOVED):
            return _("One {model} is deleted that should stay{row}.", model=model, row=shown)
        if is_of_change:
            return _("One {model} is changed that should stay as it was{row}.", model=model, row=shown)
        if kind == "deleted-row-write":
            return _("A deleted {model} comes back{row}.", model=model, row=shown)
        return _("There is one {model} too many{row}.", model=model, row=shown)
    if change == _LESS:
        if is_of_change:
            return _("A change of one {model} is lost{row}.", model=model, row=shown)
        return _("One {model} is missing{row}.", model=model, row=shown)
    # As the sentence that it is, where it was not masked.
    parts = parts_of(worst)
    return _("{model} ends with {values}.", model=model, values=text if parts == (worst,) else parts[-1])
