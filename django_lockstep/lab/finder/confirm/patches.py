"""Changes of the project's own lines that may mend a race: written as diffs, and tried by running the changed code.

The UPDATE checks and computes a value. Or the query that reads a row locks it, with the function in
`transaction.atomic`; ``save()`` writes only the fields that the function has set; or both. Only the code of functions
is replaced, while a fork is explored; the file stays.
"""

from __future__ import annotations

import ast
import difflib
import gc
import sys
import tokenize
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from django.db import transaction
from django.db.models import F

from django_lockstep.lab.finder.confirm.row_updates import Edit, edited, end_of, is_on, offset, row_update
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.record.recording import Site

__all__ = ["Patch", "patches_for"]

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
        imports = [_IMPORT_F] if any("F(" in text for _, _, text in edits) and not _has_f(self._tree) else []
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
    read, write = candidate.read.site if candidate.read else None, candidate.write.site
    if read is None or write is None or (read.path, read.function) != (write.path, write.function):
        return
    files = (folder / read.path for folder in (Path.cwd(), *map(Path, sys.path)))
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


def _has_f(tree: ast.Module) -> bool:
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return any((alias.asname or alias.name) == "F" for node in imports for alias in node.names)


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
