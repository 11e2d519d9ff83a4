"""Remedies: what fits each kind of candidate, and the changes and locks that are tried where a race was confirmed.

A change is of the project's own lines: the UPDATE checks and computes a value. Or the query that reads a row locks it,
with the function in `transaction.atomic`; ``save()`` writes only the fields that the function has set; or both. It is
written as a diff, and tried by running the changed code: only the code of functions is replaced, while a fork is
explored; the file stays.
"""

from __future__ import annotations

import ast
import difflib
import gc
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from django.apps import apps
from django.db import models, router, transaction
from django.db.models import F

from django_lockstep.lab.explorer import Exploration, Run, Step
from django_lockstep.lab.explorer.effects.operations import project_root
from django_lockstep.lab.explorer.results import RunEnding
from django_lockstep.lab.finder.confirm.forks import Fork
from django_lockstep.lab.finder.confirm.row_updates import Edit, edited, end_of, is_on, offset, row_update
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.record.recording import Site
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import ngettext

_LOCK = _("lock the row with select_for_update() before it is read, in the transaction that writes it")
_CONDITION = _("compute and check in the UPDATE itself: filter(pk=..., field__gte=n).update(field=F('field') - n)")
_CHECK = _(
    "repeat the check in the write: filter(pk=..., status=...).update(...) or .delete(), and refuse if it finds none"
)
_VERSION = _("put the version that was read into the WHERE clause of the write, and refuse or retry if no row is left")
_UNIQUE = _("a unique constraint, and get_or_create() or an IntegrityError that is handled")
_FIELDS = _("write only what was changed: save(update_fields=[...]), or filter(pk=...).update(...)")
_PARENT = _("lock the row that the new ones belong to before they are looked for")
REMEDIES = {
    "read-modify-write": (_CONDITION, _LOCK, _VERSION),
    "check-then-act": (_CHECK, _LOCK, _VERSION),
    "check-then-insert": (_UNIQUE, _PARENT),
    "whole-row-write": (_FIELDS, _LOCK, _VERSION),
    "deleted-row-write": (_FIELDS, _LOCK),
    "write-skew": (_PARENT, _("SERIALIZABLE transactions, retried when the server refuses one")),
    "lock-order": (_("lock several rows in one order everywhere, such as that of their primary keys"),),
    "late-lock": (_LOCK,),
}
"""What fits each kind of candidate, the first choice first."""

_INSERTED = re.compile(r'INSERT INTO "([^"]+)" \(([^)]*)\)')
# Half of what a fork may take, as there may be several changes and rows to try.
_SECONDS = 10.0


def _right_schedules(candidate: Candidate, fork: Fork, exploration: Exploration) -> int:
    """Explore the fork with a remedy; return its schedules if all end right, and one as without the remedy; else 0."""
    tried = fork.explore(seconds=_SECONDS, tables=(candidate.table,), stop=True, before=exploration)
    # Code that a change has broken ends in the same error in every order.
    works = any(ends_as(end, exploration) for end in tried.outcomes)
    # Vacuous: one of the two may be refused in every schedule.
    return tried.schedules if works and tried.verdict in {"nothing found", "vacuous"} else 0


def ends_as(end: RunEnding, exploration: Exploration) -> bool:
    """Whether a right outcome of the exploration is this end."""
    ends = [(right.state, right.results, right.errors) for right in exploration.outcomes if right.holds]
    return (end.state, end.results, end.errors) in ends


@dataclass(frozen=True, slots=True)
class LockFirst:
    """An actor that locks one row, FOR NO KEY UPDATE, and then does in the same transaction what another one does."""

    model: type[models.Model]
    pk: str
    actor: Callable[[Any], Any]

    def __call__(self, fixture: Any) -> Any:
        # Where it will be written: the row of a replica cannot be locked.
        using = router.db_for_write(self.model)
        with transaction.atomic(using=using):
            self.model._base_manager.using(using).select_for_update(no_key=True).get(pk=self.pk)
            return self.actor(fixture)


def try_patches(candidate: Candidate, run: Run, fork: Fork, *, exploration: Exploration) -> tuple[str, str]:
    """Explore the fork with each change of the code that may help; return the first one's diff, and what it does."""
    reads = (step.transaction for step in run.steps if step.source == str(candidate.read.site))
    for patch in patches_for(candidate, in_transaction=next(reads, None) is not None):
        # Several candidates of one request may ask for the same change.
        key = candidate.table, patch.diff
        if key not in fork.remedies:
            with patch.applied() as is_applied:
                fork.remedies[key] = _right_schedules(candidate, fork, exploration) if is_applied else 0
        if schedules := fork.remedies[key]:
            return patch.diff, ngettext(
                "with this change {number} schedule ends as serial orders do",
                "with this change {number} schedules end as serial orders do",
                schedules,
            )
    return "", ""


def try_lock(candidate: Candidate, run: Run, fork: Fork, *, exploration: Exploration) -> str:
    """Explore the fork with a row locked first; return what was done if every schedule then ends right, or nothing."""
    # The row that was read before its parents: of two locks that help, the narrower is the better advice.
    for model, pk in dict.fromkeys([*_rows_read(candidate, run), *_parents(candidate, run)]):
        lock = candidate.table, model._meta.label, pk
        # Several candidates of one request often come to the same row.
        if lock not in fork.remedies:
            actors = {name: LockFirst(model, pk, actor) for name, actor in fork.actors.items()}
            fork.remedies[lock] = _right_schedules(candidate, replace(fork, actors=actors), exploration)
        if schedules := fork.remedies[lock]:
            return ngettext(
                "with the row {pk} of {model} locked first, in the same transaction, {number} schedule ends as "
                "serial orders do",
                "with the row {pk} of {model} locked first, in the same transaction, {number} schedules end as "
                "serial orders do",
                schedules,
                pk=str(pk),
                model=model._meta.label,
            )
    return ""


def _rows_read(candidate: Candidate, run: Run) -> Iterator[tuple[type[models.Model], str]]:
    model = _models().get(candidate.table)
    if model is None:
        return
    for step in run.steps:
        if _reads(step, candidate.table) and step.values:
            pk = step.values[0].get(model._meta.pk.column or "")
            if pk is not None:
                yield model, pk


def _parents(candidate: Candidate, run: Run) -> Iterator[tuple[type[models.Model], str]]:
    """Yield the rows that the inserted one refers to, first those by which rows were looked for before."""
    model = _models().get(candidate.table)
    inserts = ((_INSERTED.match(step.sql), step.arguments) for step in run.steps)
    columns, values = next(((into[2], row) for into, row in inserts if into and into[1] == candidate.table), ("", ()))
    if model is None or not columns:
        return
    inserted = dict(zip(re.findall(r'"([^"]+)"', columns), values, strict=False))
    searched = {value for step in run.steps if _reads(step, candidate.table) for value in step.arguments}
    parents = [(field, inserted.get(field.column or "", "NULL")) for field in model._meta.fields if field.is_relation]
    for parent, key in sorted(parents, key=lambda pair: pair[1] not in searched):
        if key != "NULL" and isinstance(parent.related_model, type):
            yield parent.related_model, key


def _reads(step: Step, table: str) -> bool:
    return step.sql.startswith("SELECT") and f'"{table}"' in step.sql


def _models() -> dict[str, type[models.Model]]:
    return {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}


# Changes of the project's own lines.


_READS = frozenset({"get", "first", "last", "earliest", "latest"})
"""Methods of query sets that return one row."""
_SHORTCUT = "get_object_or_404"
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
_IMPORT = "from django.db import transaction"
_IMPORT_F = "from django.db.models import F"


@dataclass(frozen=True)
class Patch:
    """A change of one function of a file."""

    path: str
    """As recordings name it."""
    source: str
    function: str
    """Its qualified name."""
    edits: tuple[Edit, ...]
    opens_transaction: bool = False
    """Whether the function is to be in a transaction of its own."""

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def diff(self) -> str:
        """The change as ``git apply`` takes it."""
        edits = list(self.edits)
        imported = (alias for node in self._tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
        has_f = any((alias.asname or alias.name) == "F" for alias in imported)
        imports = [_IMPORT_F] if any("F(" in text for _, _, text in edits) and not has_f else []
        if self.opens_transaction:
            definition = _definition(self._tree, self.function)
            place = offset(self.source, definition.lineno)
            edits.append((place, place, f"{' ' * definition.col_offset}@transaction.atomic\n"))
            if _IMPORT not in self.source:
                imports.insert(0, _IMPORT)
        place = offset(self.source, _first_import(self._tree))
        edits.append((place, place, "".join(f"{line}\n" for line in imports)))
        before, after = (text.splitlines(keepends=True) for text in (self.source, edited(self.source, edits)))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}"))

    @contextmanager
    def applied(self) -> Iterator[bool]:
        """Have the function run the changed code; yields whether it was there as it stands in the file."""
        tree = ast.parse(edited(self.source, self.edits))
        if self.opens_transaction:
            # The same as the decorator, which a function that others have imported cannot get any more.
            definition = _definition(tree, self.function)
            call = ast.Call(ast.Name("_lockstep_atomic", ast.Load()), [], [])
            definition.body = [ast.With(items=[ast.withitem(call)], body=definition.body)]
            ast.fix_missing_locations(tree)
        # Without the future imports of this module, which change the code.
        modules = (compile(code, self.path, "exec", dont_inherit=True) for code in (self._tree, tree))
        before, after = (_code_of(module, self.function) for module in modules)
        # By the type: isinstance() would have lazy objects evaluated.
        functions = [it for it in gc.get_objects() if type(it) is FunctionType and self._is_of(it.__code__, before)]
        with ExitStack() as stack:
            for function in functions:
                for name, value in {"_lockstep_atomic": transaction.atomic, "F": F}.items():
                    if name not in function.__globals__:
                        function.__globals__[name] = value
                        stack.callback(function.__globals__.pop, name)
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = after.replace(co_filename=function.__code__.co_filename)
            yield bool(functions)

    def _is_of(self, code: CodeType, expected: CodeType) -> bool:
        is_named = code.co_qualname == self.function and code.co_filename.endswith(self.path)
        return is_named and code.co_code == expected.co_code and code.co_freevars == expected.co_freevars


def patches_for(candidate: Candidate, *, in_transaction: bool) -> Iterator[Patch]:
    """Yield the changes that may help against the candidate, the best first; none if its code has another form.

    ``in_transaction`` says whether the read is in one already.
    """
    read, write = candidate.read.site, candidate.write.site
    if read is None or write is None or (read.path, read.function) != (write.path, write.function):
        return
    files = (folder / read.path for folder in (project_root(), *map(Path, sys.path)))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return
    with tokenize.open(file) as lines:  # in the encoding that the file declares
        source = lines.read()
    tree = ast.parse(source)
    if _definition(tree, read.function) is None:
        return
    saves = list(_update_fields(source, tree, write))[:1]
    locks = list(_locking_read(source, tree, read))[:1]
    patch = Patch(read.path, source, read.function, tuple(saves))
    if candidate.kind in {"read-modify-write", "check-then-act"}:
        definition = _definition(tree, read.function)
        edits, goes_on = row_update(source, definition, lines=(read.line, write.line), table=candidate.table)
        if edits:
            yield replace(patch, edits=edits, opens_transaction=goes_on and not in_transaction)
    if saves and candidate.kind in {"whole-row-write", "deleted-row-write"}:
        yield patch
    if locks:
        patch = replace(patch, opens_transaction=not in_transaction)
        yield from (replace(patch, edits=edits) for edits in dict.fromkeys([tuple(locks), (*locks, *saves)]))


def _locking_read(source: str, tree: ast.Module, site: Site) -> Iterator[Edit]:
    """Yield what makes the query on the line lock its row."""
    for call in _calls_on(tree, site.line):
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _READS
            and not isinstance(call.func.value, ast.Name)
        ):
            place = end_of(source, call.func.value)
            yield place, place, ".select_for_update()"
        elif isinstance(call.func, ast.Name) and call.func.id == _SHORTCUT and call.args:
            name = ast.unparse(call.args[0]).rpartition(".")[2]
            is_model = name[:1].isupper() and not name.isupper()
            place = end_of(source, call.args[0])
            yield place, place, f"{'.objects' if is_model else ''}.select_for_update()"


def _update_fields(source: str, tree: ast.Module, site: Site) -> Iterator[Edit]:
    """Yield what has a ``save()`` without arguments on the line write only what the function has set on the object."""
    nodes = list(ast.walk(_definition(tree, site.function)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    for call in _calls_on(tree, site.line):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "save" and not (call.args or call.keywords):
            owner = ast.unparse(call.func.value)
            names = [node.attr for node in attributes if ast.unparse(node.value) == owner]
            if names:
                listed = ", ".join(f'"{name}"' for name in dict.fromkeys(names))
                place = end_of(source, call) - 1
                yield place, place, f"update_fields=[{listed}]"


def _calls_on(tree: ast.Module, line: int) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if is_on(call, line)]


def _definition(tree: ast.AST, qualname: str) -> Any:
    """Return the function of this name; None of a lambda or a coroutine. ``<locals>`` are those inside of others."""
    node: ast.AST | None = tree
    for name in qualname.replace(".<locals>", "").split("."):
        definitions = (inner for inner in (ast.walk(node) if node else ()) if isinstance(inner, _DEFINITIONS))
        node = next((inner for inner in definitions if inner is not node and inner.name == name), None)
    return node


def _first_import(tree: ast.Module) -> int:
    imports = (node.lineno for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    from_future = [
        node.lineno + 1 for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    return from_future[0] if from_future else next(imports, 1)


def _code_of(code: CodeType, qualname: str) -> CodeType:
    """Return the code of the function of this name in a module's code."""
    nested = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for inner in nested:
        if inner.co_qualname == qualname:
            return inner
    return next(_code_of(inner, qualname) for inner in nested if qualname.startswith(f"{inner.co_qualname}."))
