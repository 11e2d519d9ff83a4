"""What holds in every project that installs the library, and the showcase."""

from pathlib import Path

import pytest

from tests.installed.project import Project
from tests.support.pages import ROOT


class CleanProjectTests:
    """For a module with a fixture ``project``, whose migrations are made and applied."""

    def test_the_library_comes_from_the_wheel(self, project: Project) -> None:
        place = Path(project.evaluate("__import__('django_lockstep').__file__"))
        assert place.is_relative_to(project.python.parent.parent)
        assert not place.is_relative_to(ROOT)

    def test_no_migration_is_missing(self, project: Project) -> None:
        assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")

    @pytest.mark.parametrize("options", [[], ["--database", "default"]], ids=["statically", "with the database"])
    def test_the_checks_are_clean(self, project: Project, options: list[str]) -> None:
        printed = project.manage("check", "--fail-level", "DEBUG", *options)
        assert printed == "System check identified no issues (0 silenced).\n"


class ProjectTests(CleanProjectTests):
    """For one whose project has tests of its own."""

    tests: tuple[str, ...] = ()
    """The modules of those that it runs; all if there are none."""

    def test_its_own_tests_pass(self, project: Project) -> None:
        assert "skipped" not in project.test(*self.tests)


class AccountProjectTests(ProjectTests):
    """For projects whose ``TELLER_MODEL`` is an account model."""

    tests = ("teller.tests",)

    def test_the_books_are_right(self, project: Project) -> None:
        label = project.evaluate("django.conf.settings.TELLER_MODEL")
        assert project.manage("reconcile", "--model", label) == (f"Every balance of {label} matches its entries.\n")
