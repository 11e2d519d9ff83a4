"""The README's test of a race, pasted into a project that installs no app of ours."""

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.installed.building import build, run
from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project
from tests.support import pages

SECTION = (pages.ROOT / "README.md").read_text().partition("## Test your own code for races\n")[2].partition("\n## ")[0]
FILES = [step for step in pages.steps(SECTION) if isinstance(step, pages.File)]
(SCHEDULE,) = set(re.findall(r'race\.replay\("([A-Z]+)"', SECTION))

SCENARIO = """
from django_lockstep.lab.explorer import Scenario
from django.db.models import F
from shows.models import Show


def widen(pk):
    Show.objects.filter(pk=pk).update(seats=F("seats") + 1)


seats = Scenario(set_up=lambda: Show.objects.create().pk, actors=[widen, widen])
"""


@pytest.fixture(scope="module")
def project(start_project_with_lab: Projects, make_database: Databases) -> Project:
    project = start_project_with_lab("races")
    project.configure(apps=["shows"], database=make_database("races"))
    project.write("shows/__init__.py")
    for file in FILES:
        project.write(file.path, file.text)
    project.manage("makemigrations", "shows")
    project.manage("migrate")
    return project


def test_the_code_as_it_was_fails_with_a_timeline_and_the_mended_code_passes(project: Project) -> None:
    broken = project.run("-m", "pytest", "--reuse-db", "-p", "no:cacheprovider")
    locked = "Show.objects.select_for_update(no_key=True).get(pk=show_pk)"
    assert f"`{locked}`" in SECTION
    project.write(FILES[0].path, FILES[0].text.replace("Show.objects.get(pk=show_pk)", locked))
    mended = project.run("-m", "pytest", "--reuse-db", "-p", "no:cacheprovider")

    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "1 failed" in broken.stdout
    assert f"schedule {SCHEDULE}, WRONG" in broken.stdout
    shown = SECTION.partition("It fails:")[2]
    for what in (shown.split('"')[1], shown.split("`")[1]):
        assert what in broken.stdout
    assert mended.returncode == 0, mended.stdout + mended.stderr
    assert "1 passed" in mended.stdout


def test_no_app_of_ours_is_installed(project: Project) -> None:
    assert "lockstep" not in str(project.execute("print([app.name for app in apps.get_app_configs()])"))


def test_own_scenarios_are_explored_from_the_shell_with_the_lab_alone(project: Project) -> None:
    project.write("shows/races.py", SCENARIO)
    settings = project.folder / "site_of_others" / "settings.py"
    before = settings.read_text()
    settings.write_text(before + 'INSTALLED_APPS += ["django_lockstep", "django_lockstep.lab"]\n')
    try:
        printed = project.manage("explore", "shows.races.seats")
    finally:
        settings.write_text(before)

    assert "shows.races.seats: holds" in printed


def test_the_lab_alone_says_what_is_missing(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = build("django-lockstep-lab", tmp_path_factory).wheel
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import django_lockstep.lab"
    done = run([sys.executable, "-I", "-c", program], cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: django-lockstep-lab needs django-lockstep, which is not installed: pip install django-lockstep"
    )
