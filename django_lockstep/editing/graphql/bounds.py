"""Bounds of a document, checked before any validation rule walks it.

A fragment that spreads the next one twice doubles the work of every walk along the spreads, so a few hundred bytes
could keep a thread for minutes. `measure` visits each fragment once: its time is linear in the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    OperationDefinitionNode,
)
from strawberry.extensions import SchemaExtension


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a document when its fragments are expanded; also a document's largest allowed size."""

    selections: int = 0
    """Fields, spreads and inline fragments."""
    aliases: int = 0
    """Fields with another name; each may be a check-out."""
    levels: int = 0
    """Fields with fields of their own, one in another; those of introspection are not counted."""

    def __add__(self, size: Size) -> Size:
        """Return the size of both, side by side."""
        levels = max(self.levels, size.levels)
        return Size(self.selections + size.selections, self.aliases + size.aliases, levels)


class Bounds(SchemaExtension):
    """Refuses a document that is larger than ``largest``."""

    def __init__(self, largest: Size) -> None:
        self.largest = largest

    def on_validate(self) -> Iterator[None]:
        document = self.execution_context.graphql_document
        size = measure(document) if document else Size()
        for name, bound in asdict(self.largest).items():
            if getattr(size, name) > bound:
                raise GraphQLError(f"The document has more than {bound} {name} when its fragments are expanded")
        yield


def measure(document: DocumentNode) -> Size:
    """Return the size of all operations. A fragment inside itself counts once: the validation refuses it."""
    fragments = {node.name.value: node for node in document.definitions if isinstance(node, FragmentDefinitionNode)}
    sizes: dict[str, Size] = {}

    def size_of(node: Any) -> Size:
        if isinstance(node, FragmentSpreadNode):
            name = node.name.value
            if name in fragments and name not in sizes:
                sizes[name] = Size()  # for a spread inside itself
                sizes[name] = size_inside(fragments[name])
            return Size(1) + sizes.get(name, Size())
        size = size_inside(node)
        if not isinstance(node, FieldNode):
            return Size(1) + size
        levels = size.levels + 1 if node.selection_set and not node.name.value.startswith("__") else 0
        return Size(size.selections + 1, size.aliases + bool(node.alias), levels)

    def size_inside(node: Any) -> Size:
        return sum(map(size_of, node.selection_set.selections if node.selection_set else ()), Size())

    operations = (node for node in document.definitions if isinstance(node, OperationDefinitionNode))
    return sum(map(size_inside, operations), Size())
