"""What holds in every project that installs the library, and the showcase."""

from pathlib import Path

from tests.installed.project import Project
from tests.support.pages import ROOT

CHECK = "call_command('check', databases=['default'], fail_level='DEBUG')"
CHECK_MIGRATIONS = "call_command('makemigrations', check_changes=True, dry_run=True)"


class CleanProjectTests:
    """For a module with a fixture ``project``, whose migrations are made and applied."""

    def test_the_library_is_the_wheels_its_checks_are_clean_and_no_migration_is_missing(self, project: Project) -> None:
        place, *printed = project.execute("print(__import__('django_lockstep').__file__)", CHECK, CHECK_MIGRATIONS)
        assert Path(place).is_relative_to(project.python.parent.parent)
        assert not Path(place).is_relative_to(ROOT)
        assert printed == ["System check identified no issues (0 silenced).", "No changes detected"]


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
        model = "django.conf.settings.TELLER_MODEL"
        label, printed = project.execute(f"print({model})", f"call_command('reconcile', model={model})")
        assert printed == f"Every balance of {label} matches its entries."
