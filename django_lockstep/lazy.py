"""Public names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_exports(package: str, *modules: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that Django imports before models can be defined.

    A name is taken from the first module that has it. Modules are imported in this order, so those that need the app's
    tables come last. One that begins with a dot is beside the package, not in it.
    """

    def find(name: str) -> Any:
        if name in import_module(package).__all__:
            for module in modules:
                submodule = import_module(f".{module}", package)
                if hasattr(submodule, name):
                    return getattr(submodule, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(import_module(package)), *import_module(package).__all__})

    return find, names
