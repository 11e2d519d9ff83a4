"""Which actor of a run read and wrote what, and when others could see it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping

from django_lockstep.lab.explorer.render.summaries import summarize
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.explorer.tables.final_state import REMOVED

Triples = Iterator[tuple[Step, Step, Step]]
_LOCKING = re.compile(r" FOR (?:NO KEY |KEY )?(?:UPDATE|SHARE)\b.*$", re.IGNORECASE)

_LOOKS = {"SELECT", "UPDATE", "DELETE"}


# Each is asked for every pair of hundreds of steps.


@functools.lru_cache(maxsize=4)
def reads(run: Run) -> list[Step]:
    return [step for step in run.steps if summarize(step).verb == "SELECT" and step.sqlstate is None]


@functools.lru_cache(maxsize=16)
def writes(run: Run, *verbs: str) -> list[Step]:
    """Return the writes, by default of all kinds, that changed something and were not rolled back."""
    kinds = verbs or ("UPDATE", "INSERT", "DELETE")
    return [step for step in run.steps if summarize(step).verb in kinds and step.rows != 0 and not undone(run, step)]


@functools.lru_cache(maxsize=4)
def _transactions(run: Run) -> Mapping[tuple[str, int | None], tuple[int, int]]:
    """Return the move with which each transaction ends, and that of its last rollback, to a savepoint or whole."""
    moves: dict[tuple[str, int | None], tuple[int, int]] = {}
    for step in run.steps:
        ended, rolled_back = moves.get((step.actor, step.transaction), (0, -1))
        rolled_back = step.begun if step.sql.startswith("ROLLBACK") else rolled_back
        moves[step.actor, step.transaction] = max(ended, step.ended), rolled_back
    return moves


def pairs(steps: list[Step], *, same_actor: bool = False) -> Iterator[tuple[Step, Step]]:
    """Yield pairs of steps of different actors, or of the same actor, the earlier step first."""
    for index, later in enumerate(steps):
        yield from ((earlier, later) for earlier in steps[:index] if (earlier.actor == later.actor) is same_actor)


def same_transaction(first: Step, second: Step) -> bool:
    return first.actor == second.actor and first.transaction == second.transaction is not None


def looks_before(run: Run, step: Step, table: str = "") -> list[Step]:
    """Return the reads, UPDATEs and DELETEs, all of which look for rows, that the step may be based on."""
    return [
        look
        for look in run.steps
        if look.actor == step.actor
        and look.ended < step.begun
        and look.sqlstate is None
        and summarize(look).verb in _LOOKS
        and table in {"", summarize(look).table, *summarize(look).tables}
        # Not those of transactions that failed and were run again.
        and (same_transaction(look, step) or not undone(run, look))
    ]


def overtaken(run: Run, steps: list[Step], relevant: Callable[[Step, Step], bool] = lambda *_: True) -> Triples:
    """Yield the last relevant read of each step's row, another actor's change of the row after it, and the step."""
    for step in steps:
        table = summarize(step).table
        # One that found nothing has read no row.
        looks = [look for look in looks_before(run, step, table) if summarize(look).verb == "SELECT" and look.rows != 0]
        # Of a joined table the keys are not known, as where a model has rows in two tables.
        near = [look for look in looks if summarize(look).table != table or summarize(look).may_touch(summarize(step))]
        # What was read last counts: an earlier attempt may have read, failed, and begun again.
        for source in [look for look in near if relevant(look, step)][-1:]:
            for change in changes_between(run, source, step.ended):
                # A row that is found no more may be one of many that were deleted.
                mine, theirs = summarize(step), summarize(change)
                is_gone = step.rows == 0 and theirs.verb == "DELETE"
                if theirs.same_row(mine) or (is_gone and theirs.may_touch(mine)):
                    yield source, change, step


def read_twice(run: Run) -> Triples:
    """Yield equal reads of one transaction with different results, and the change by another actor between them."""
    for first, second in pairs(reads(run), same_actor=True):
        if not (same_transaction(first, second) and search_of(first) == search_of(second)):
            continue
        # Its own writes explain a difference as well: a transaction sees them at every level.
        own = any(first.begun < step.begun < second.begun and step.actor == first.actor for step in writes(run))
        if not own and (first.rows, first.values) != (second.rows, second.values):
            meanwhile = changes_between(run, first, second.ended)
            yield from ((first, second, between) for between in meanwhile if may_see(first, between))


def changes_between(run: Run, first: Step, last: int) -> Iterator[Step]:
    """Yield other actors' changes that became visible after the first step and no later than with the last move."""
    for step in writes(run):
        if step.actor != first.actor and first.ended < visible_from(run, step) <= last:
            yield step


def may_see(look: Step, change: Step) -> bool:
    """Whether the look may be about rows and columns that the other statement changed, as far as their texts tell."""
    summary, changed = summarize(look), summarize(change)
    if changed.verb == "INSERT":
        keys = {name: values for name, values in summary.keys.items() if name in changed.plain}
        return summary.table == changed.table and all(changed.sets[name] in values for name, values in keys.items())
    # A condition by another column than the change's may match the row.
    if not summary.may_touch(changed):
        return False
    names = {*re.findall(r"\w+", look.sql), *(name for row in look.values for name in row)}
    return changed.verb == "DELETE" or not names.isdisjoint(changed.sets)


def wrong_answers(run: Run, *verbs: str) -> Mapping[str, str]:
    """Return those differences to the nearest serial end that are in what actors returned or raised, with the actor."""
    answers = [
        (name, f"{name} {verb} ")
        for name in {step.actor for step in run.steps}
        for verb in verbs or ("returned", "raised")
    ]
    return {text: name for name, begin in answers for text in run.differences if text.startswith(begin)}


def may_answer_wrong(run: Run, actor: str) -> bool:
    """Whether what is wrong may be that the actor returned what it did."""
    wrong = wrong_answers(run, "returned")
    # Of two that answer alike, the nearest serial order names one; where only answers differ, either.
    alike = {name for name, text in run.results.items() if text == run.results.get(actor)}
    return not alike.isdisjoint(wrong.values()) or 0 < len(wrong) == len(run.differences)


def differing(run: Run) -> set[str]:
    """Return the tables whose rows are not those of the nearest serial end."""
    others = set(run.differences) - wrong_answers(run).keys()
    return {text.partition(":")[0].removesuffix(REMOVED).rpartition(".")[2] for text in others}


@functools.lru_cache(maxsize=4)
def _looks(run: Run) -> Mapping[int, list[Step]]:
    # Once for each change: a finder asks it for each pair of them.
    looks = [step for step in run.steps if step.sqlstate is None and summarize(step).verb in _LOOKS]
    return {
        change.begun: [look for look in looks if look.actor != change.actor and may_see(look, change)]
        for change in writes(run)
    }


def looks_at(run: Run, change: Step) -> list[Step]:
    """Return other actors' reads, UPDATEs and DELETEs that may be about what a write changed, at any time."""
    return _looks(run)[change.begun]


def misses(run: Run, look: Step, change: Step) -> bool:
    """Whether the look may be about what another actor changed, and came before that could be seen."""
    # A statement that waited for a row reads its new version, but rows inserted meanwhile are not in its snapshot
    # (EvalPlanQual in PostgreSQL's executor).
    seen = look.begun if summarize(change).verb == "INSERT" else look.ended
    return look.actor != change.actor and seen < visible_from(run, change) and may_see(look, change)


def visible_from(run: Run, step: Step) -> int:
    """Return the move at which the step's change became visible."""
    return step.ended if step.transaction is None else _transactions(run)[step.actor, step.transaction][0]


def undone(run: Run, step: Step) -> bool:
    """Whether the step failed, or its transaction was later rolled back, completely or to a savepoint."""
    rolled_back = step.transaction is not None and step.begun < _transactions(run)[step.actor, step.transaction][1]
    return step.sqlstate is not None or rolled_back


def search_of(step: Step) -> tuple[str, tuple[str, ...], str]:
    """Return who looks for what, whether the rows are locked or not."""
    return step.actor, step.arguments, _without_lock(step.sql)


@functools.lru_cache(maxsize=1024)
def _without_lock(sql: str) -> str:
    return _LOCKING.sub("", sql)
