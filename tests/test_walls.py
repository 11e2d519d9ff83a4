"""Who may import whom, inside the package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ANYTHING = ("",)
OURS = ("accounts", "bank", "benchmarks")

# The longest prefix that fits a module decides; each lists the modules of ours that it may import.
WALLS = {
    "bank": ANYTHING,
    "benchmarks": ANYTHING,
    "accounts.locking": ("accounts.locking",),
    "accounts.leases": ("accounts.leases", "accounts.locking"),
    "accounts.editing": ("accounts.editing", "accounts.locking"),
    "accounts.http": ("accounts.http", "accounts.locking"),
    "accounts.lab": ("accounts.lab", "accounts.locking.errors"),
    # Actors' retries do not pause: that is all that the explorer asks of the library's switches.
    "accounts.lab.explorer": ("accounts.lab", "accounts.locking.conf", "accounts.locking.errors"),
    "accounts.lab.anomalies": ("accounts.lab", "accounts.locking"),
    "accounts.lab.scenarios": ("accounts",),
    "accounts.queued": (
        "accounts.abstract",
        "accounts.amounts",
        "accounts.batches",
        "accounts.changes",
        "accounts.errors",
        "accounts.locking",
        "accounts.models",
        "accounts.queued",
    ),
    "accounts.slotted": (
        "accounts.abstract",
        "accounts.amounts",
        "accounts.changes",
        "accounts.errors",
        "accounts.locking",
        "accounts.operations",
        "accounts.slotted",
        "accounts.statements",
    ),
    "accounts.api": (
        "accounts.abstract",
        "accounts.amounts",
        "accounts.api",
        "accounts.errors",
        "accounts.http",
        "accounts.locking",
        "accounts.models",
    ),
    "accounts.abstract": (
        "accounts.amounts",
        "accounts.batches",
        "accounts.changes",
        "accounts.checks",
        "accounts.errors",
        "accounts.locking",
        "accounts.statements",
    ),
    "accounts.fast": ("accounts.abstract", "accounts.locking", "accounts.statements"),
    "accounts.batches": ("accounts.changes", "accounts.errors", "accounts.locking", "accounts.statements"),
    "accounts.changes": ("accounts.amounts", "accounts.errors"),
    "accounts.statements": ("accounts.amounts", "accounts.changes", "accounts.locking", "accounts.statements"),
    "accounts.checks": ("accounts.locking", "accounts.operations"),
    "accounts.operations": ("accounts.locking",),
    "accounts.management": ("accounts.abstract", "accounts.api", "accounts.reconciliation"),
    "accounts.admin": ("accounts.admin", "accounts.locking"),
    "accounts.admin.bank": (
        "accounts.abstract",
        "accounts.admin",
        "accounts.errors",
        "accounts.locking",
        "accounts.models",
    ),
    "accounts.models": ("accounts.abstract",),
    "accounts.amounts": ("accounts.errors",),
    "accounts.errors": (),
    "accounts": (
        "accounts.abstract",
        "accounts.amounts",
        "accounts.errors",
        "accounts.fast",
        "accounts.locking",
        "accounts.models",
        "accounts.operations",
        "accounts.reconciliation",
        "accounts.statements",
    ),
}


def within(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(prefix + ".")


def modules() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield what the module imports of our own, at its top or inside its functions."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            yield ".".join(filter(None, (base, node.module)))


def crossings(name: str, path: Path) -> list[str]:
    room = max((prefix for prefix in WALLS if within(name, prefix)), key=len)
    ours = [module for module in imported(name, path) if any(within(module, package) for package in OURS)]
    return [module for module in ours if not any(within(module, allowed) for allowed in WALLS[room])]


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=[name for name, _ in modules()])
def test_no_wall_is_crossed(name: str, path: Path) -> None:
    assert crossings(name, path) == []


def test_a_crossing_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text("def f():\n    from accounts.models import Account\n    from ..errors import InvalidAmount\n")
    assert crossings("accounts.locking.rows", path) == ["accounts.models", "accounts.errors"]


def test_nothing_imports_the_benchmarks() -> None:
    users = {name for name, path in modules() if any(within(module, "benchmarks") for module in imported(name, path))}
    assert {name for name in users if not within(name, "benchmarks")} == set()


def test_imports_make_no_circles() -> None:
    graph = {name: {m for m in imported(name, path) if m != name} for name, path in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"circle: {' -> '.join((*trail, name))}"
        if name not in done:
            for module in graph.get(name, ()):
                visit(module, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_only_these_packages_are_at_the_top() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= {"accounts", "bank", "benchmarks", "tests"}
