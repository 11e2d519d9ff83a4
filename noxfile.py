"""Every chore by its name: ``nox -s lint``; without a name, all of them."""

import re
from itertools import product
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.error_on_missing_interpreters = False  # such sessions are skipped, and nox prints why

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
DJANGOS = re.findall(r"Framework :: Django :: (\d+\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
# Django 6 needs Python 3.12.
MATRIX = [pair for pair in product(PYTHONS, DJANGOS) if not (pair[0] == "3.11" and pair[1] >= "6")]


def install(session: nox.Session, *groups: str) -> None:
    """Install what the repository runs with, and these dependency groups."""
    session.install("-r", "requirements.txt", *nox.project.dependency_groups(PROJECT, *groups))


@nox.session
@nox.parametrize(("python", "django"), MATRIX)
def tests(session: nox.Session, django: str) -> None:
    """Run the tests, or those that are named behind ``--``."""
    install(session, "tests")
    session.install(f"django=={django}.*")
    session.run("pytest", *(session.posargs or ["-m", ""]))


# 3.14: the first in which the interpreter itself notes branches. Elsewhere a trace function does, several times slower.
@nox.session(python="3.14", default=False)
def coverage(session: nox.Session) -> None:
    """Measure which lines and branches all tests run, in the processes that they start as well."""
    install(session, "tests", "types")
    session.run("coverage", "erase")
    # Coverage's own file of data, which it leaves to be closed by the garbage collector.
    ignored = "ignore:Exception ignored while finalizing database connection"
    arguments = session.posargs or ["-m", "", "--dist", "loadfile", "--timeout", "300"]
    session.run("coverage", "run", "-m", "pytest", "-W", ignored, *arguments)
    session.run("coverage", "combine", "-q")
    session.run("coverage", "report")


@nox.session
def lint(session: nox.Session) -> None:
    """Look for bad style."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types."""
    install(session, "tests", "types")
    session.run("mypy")


@nox.session
def walls(session: nox.Session) -> None:
    """Check who imports whom."""
    install(session, "walls")
    session.run("lint-imports")


@nox.session
def project(session: nox.Session) -> None:
    """Ask Django whether the demo's settings are safe and no migration is missing."""
    install(session)
    session.run("python", "manage.py", "check", "--deploy", "--fail-level", "INFO")
    # Those of the tests have all apps of the demo, and their own.
    session.run(
        "python",
        "manage.py",
        "makemigrations",
        "--check",
        "--dry-run",
        env={"DJANGO_SETTINGS_MODULE": "tests.settings"},
    )


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; check its spelling, and the links between its pages."""
    install(session, "docs")
    session.run("codespell", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
    session.run("sphinx-build", "-q", "-W", "-b", "html", "docs", "docs/_build")
    session.run("sphinx-build", "-q", "-W", "-b", "linkcheck", "docs", "docs/_build/links")


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist of each distribution and the wheel from it, and ask whether the package index would take them."""
    install(session, "packages")
    folder = session.create_tmp()
    for source in (".", "django_lockstep/lab", "accounts"):
        session.run("python", "-m", "build", "--no-isolation", "--outdir", folder, source)
    session.run("twine", "check", "--strict", *map(str, Path(folder).iterdir()))


@nox.session(default=False)
def screenshots(session: nox.Session) -> None:
    """Take the pictures of pages in the documentation again."""
    install(session, "tests")
    session.run("python", "docs/screenshots.py")


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure, with everything to compare with; behind ``--`` what ``python -m benchmarks`` takes."""
    install(session, "tests")
    session.install("-r", "benchmarks/requirements.txt")
    session.run("python", "-m", "benchmarks", *session.posargs)
