"""``pytest --find-races`` in a project of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_lockstep.lab.finder.findings import Findings
from django_lockstep.lab.finder.record.recording import read_recording
from tests.support.processes import foreign_environment

FILES = {
    "pytest.ini": """
[pytest]
DJANGO_SETTINGS_MODULE = settings
python_files = test_*.py
pythonpath = .
""",
    "settings.py": """
import json, os

SECRET_KEY = "not secret"
INSTALLED_APPS = ["cinema"]
DATABASES = {"default": json.loads(os.environ["CINEMA_DATABASE"])}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
""",
    "cinema/__init__.py": "",
    "cinema/models.py": """
from django.db import models


class Show(models.Model):
    title = models.CharField(max_length=50)
    free = models.IntegerField(default=10)
""",
    "cinema/services.py": """
from cinema.models import Show


def book(pk, seats):
    show = Show.objects.get(pk=pk)
    show.free -= seats
    show.save()
""",
    "cinema/test_services.py": """
import pytest
from django.test import TestCase
from cinema.models import Show
from cinema.services import book


class BookTests(TestCase):
    def test_it(self):
        show = Show.objects.create(title="A confidential title")
        with self.assertNumQueries(2):
            book(show.pk, 3)
        show.refresh_from_db()
        self.assertEqual(show.free, 7)


@pytest.mark.django_db(transaction=True)
def test_committed():
    show = Show.objects.create(title="Other")
    book(show.pk, 2)


def test_that_fails():
    assert 1 == 2
""",
}


def sqlite() -> dict[str, str]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def postgresql() -> dict[str, str]:
    """Return a database beside that of this process, for pytest-django puts ``test_`` before its name."""
    server = connection.get_connection_params()
    names = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    settings = {name: str(server[key]) for name, key in names.items() if server.get(key)}
    return {"ENGINE": "django.db.backends.postgresql", "NAME": f"{server['dbname']}_cinema", **settings}


class Project:
    """A project in a folder."""

    status: int
    """pytest's last exit status."""

    def __init__(self, folder: Path, database: dict[str, str], **files: str) -> None:
        """Write the project, with other texts for these ``files``."""
        self.folder = folder
        self.database = database
        for name, text in {**FILES, **files}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text.lstrip())

    @property
    def env(self) -> dict[str, str]:
        return foreign_environment(CINEMA_DATABASE=json.dumps(self.database))

    def pytest(self, *options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "django_lockstep.lab.pytest_plugin"]
        done = subprocess.run(
            [*command, *options], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        self.status = done.returncode
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path, db: None) -> Project:
    return Project(tmp_path, postgresql())


def verdicts(printed: str) -> list[str]:
    """Return what each test of a race said: the verdict, and its reason where that is not "broken".

    pytest says it a second time in its summary, where that is wide enough or the variable ``CI`` is set.
    """
    ends = re.findall(r"^(?:It races \((.*?)\): (.*)|(The test did not reach .*))$", printed, re.MULTILINE)
    return [missed or (verdict if verdict == "broken" else f"{verdict}: {reason}") for verdict, reason, missed in ends]


def outcomes(printed: str) -> str:
    results = re.findall(r"\d+ failed, \d+ passed", printed)
    assert results, printed
    return str(results[-1])


COUNTED = """
from django.db.models import F
from cinema.models import Show

def read(pk):
    show = Show.objects.get(pk=pk)
    Show.objects.filter(pk=show.pk).update(free=F("free") + 1)
"""
ALIKE = """
import pytest
from cinema.models import Show
from cinema.services import read

pytestmark = pytest.mark.django_db(transaction=True)
"""
_ALIKE = """

def test_{0}():
    read(Show.objects.create(title="{0}").pk)
"""
FEW = """
from django_lockstep.lab.finder.confirm import confirmation

confirmation.MOST_STATEMENTS = 1
"""
LINE = (
    "cinema.Show.free is read at cinema/services.py:5 without a lock, and written at cinema/services.py:7 with another "
    "value"
)


def test_tests_come_out_as_they_would_and_candidates_are_listed(project: Project) -> None:
    printed = project.pytest("--find-races", "--race-record", "races.jsonl")

    assert outcomes(printed) == "1 failed, 2 passed"
    assert "1 candidate in 2 units of work that write, from 3 tests" in printed
    assert LINE in printed
    assert f"recording: {project.folder / 'races.jsonl'}" in printed
    assert "confidential" not in (project.folder / "races.jsonl").read_text()


def test_workers_record_into_one_file_in_the_cache(project: Project) -> None:
    printed = project.pytest("--find-races", "-n", "2", "--race-values")

    assert outcomes(printed) == "1 failed, 2 passed"
    assert "1 candidate in 2 units of work that write, from 3 tests" in printed
    path = project.folder / ".pytest_cache" / "d" / "races" / "recording.jsonl"
    assert "confidential" in path.read_text()
    assert {unit.test for unit in read_recording(path).units} == {
        "cinema/test_services.py::BookTests::test_it",
        "cinema/test_services.py::test_committed",
    }


def test_what_was_explored_in_one_test_is_not_explored_in_the_next(project: Project) -> None:
    (project.folder / "cinema/services.py").write_text(COUNTED)
    (project.folder / "cinema/test_services.py").write_text("".join([ALIKE, *map(_ALIKE.format, "abcd")]))
    tried = []
    for options in (["-k", "test_a"], []):
        project.pytest("--find-races", "--race-budget", "60s", "--race-record", "r.jsonl", *options)
        (finding,) = Findings.on(project.folder / "r.jsonl").in_order()
        (project.folder / "r.jsonl").unlink()
        tried.append((finding.verdict, finding.schedules))

    assert tried[0] == tried[1] == ("not confirmed", tried[0][1])


LEAVE = FILES["cinema/services.py"].replace("def book(pk, seats)", "def leave(pk, seats)")
DEADLY = """
import os, signal
from django.db import connection
from django.test import TestCase
from cinema.models import Show
from cinema.services import book, leave

class DeadlyTests(TestCase):
    def test_it(self):
        show = Show.objects.create(title="Lear")
        if not connection.in_atomic_block:  # only in a session that has tests commit
            os.kill(os.getpid(), signal.SIGSEGV)
        book(show.pk, 1)
        leave(show.pk, 2)
"""
DEADLY_TEST = "cinema/test_deadly.py::DeadlyTests::test_it"


def test_a_session_that_dies_goes_on_behind_the_test_that_ended_it(project: Project) -> None:
    (project.folder / "cinema/services.py").write_text(FILES["cinema/services.py"] + LEAVE)
    (project.folder / "cinema/test_deadly.py").write_text(DEADLY)
    printed = project.pytest("--find-races", "--race-record=races.jsonl")
    project.pytest("-k", "BookTests")  # deletes the database that the dead session has left
    results = Findings.on(project.folder / "races.jsonl")

    reasons = {it.candidate.unit: f"{it.verdict}: {it.reason}" for it in results.in_order()}
    assert reasons.pop("cinema.services.book").startswith("confirmed: "), printed
    assert reasons == {
        "cinema.services.leave": "not tried: its test failed before it came to it: the session died in it"
    }
    assert results.notes == (f"{DEADLY_TEST}: the session that tries candidates died in it, and went on behind it",)
    assert results.notes[0] in printed
    assert "Fatal Python error: Segmentation fault" in (project.folder / "races.jsonl.log").read_text()


def test_what_the_budget_cuts_off_is_not_decided_and_further_rounds_go_on_with_it(project: Project) -> None:
    (project.folder / "cinema/services.py").write_text(COUNTED)
    (project.folder / "cinema/test_services.py").write_text("".join([FEW, ALIKE, *map(_ALIKE.format, "ab")]))
    printed = project.pytest("--find-races", "--race-budget=0.02s", "--race-record=r.jsonl")
    (first,) = Findings.on(project.folder / "r.jsonl").in_order()
    assert first.verdict == "not decided", printed
    assert "1 candidate: 0 confirmed, 1 not decided, 0 not confirmed" in printed
    assert first.reason.endswith("; more is left to try, with a larger budget")

    printed = project.pytest("--race-confirm=r.jsonl", "-v")
    (second,) = Findings.on(project.folder / "r.jsonl").in_order()
    assert second.verdict == "not confirmed", printed
    assert second.schedules > first.schedules
    assert printed.count("test_a PASSED") > 1


def test_tests_that_cannot_be_collected_leave_an_earlier_recording_alone(tmp_path: Path) -> None:
    project = Project(tmp_path, sqlite())
    (tmp_path / "cinema" / "test_broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "races.jsonl").write_text("earlier")

    printed = project.pytest("--find-races", "--race-record=races.jsonl")

    assert "1 error" in printed
    assert "candidate" not in printed
    assert (tmp_path / "races.jsonl").read_text() == "earlier"


def test_another_database_is_named_and_its_tests_run(tmp_path: Path) -> None:
    printed = Project(tmp_path, sqlite()).pytest("--find-races")

    assert outcomes(printed) == "1 failed, 2 passed"
    why = "Database 'default' was not recorded: that needs PostgreSQL with psycopg 3, and it is SQLite"
    assert f"\nNOTHING WAS LOOKED AT: nothing that a test writes was recorded. {why}" in printed


@pytest.mark.parametrize("options", [["--race-budget=0"], ["-n2"]])
def test_where_nothing_is_recorded_the_status_says_so(tmp_path: Path, options: list[str]) -> None:
    project = Project(tmp_path, sqlite())

    assert "NOTHING WAS LOOKED AT: " in project.pytest("--find-races", "-k", "BookTests", *options)
    assert project.status == 11


CONFIGURED = """
import json, os
from django.conf import settings

def configure():
    settings.configure(
        INSTALLED_APPS=["cinema"],
        DATABASES={"default": json.loads(os.environ["CINEMA_DATABASE"])},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
"""


@pytest.mark.parametrize(
    "conftest", ["", f"{CONFIGURED}\nconfigure()", f"{CONFIGURED}\ndef pytest_configure(): configure()"]
)
def test_files_in_another_folder_change_neither_root_nor_settings(project: Project, conftest: str) -> None:
    (elsewhere := project.folder / "else where").mkdir()
    if conftest:
        (project.folder / "settings.py").unlink()
        (project.folder / "conftest.py").write_text(conftest)
        (project.folder / "pytest.ini").write_text("[pytest]\npython_files = test_*.py\npythonpath = .\n")
    record, report = str(elsewhere / "races.jsonl"), str(elsewhere / "report.json")
    (elsewhere / "report.json").write_text("of an earlier run")
    folder, project.folder = project.folder, project.folder / "cinema"

    printed = project.pytest("--find-races", "--race-record", record, "--race-report", report)
    assert "1 candidate: 1 confirmed" in printed
    assert f"rootdir: {folder}\n" in printed
    assert set(re.findall(r"\S*\bservices\.py(?=:\d|: step)", printed)) == {"cinema/services.py"}
    if conftest:  # the session that tries candidates, which --race-confirm is, too, has found them
        return
    Path(f"{record}.findings").unlink()
    assert "1 candidate: 1 confirmed" in project.pytest("--race-confirm", record, "--race-report", report)
    assert project.status == 1
    assert json.loads(Path(report).read_text())["counts"]["confirmed"] == 1


def run_python(project: Project, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=project.folder, env=project.env, capture_output=True, text=True, check=False)


def test_a_program_that_starts_pytest_is_told_to_use_an_equals_sign(tmp_path: Path) -> None:
    program = "import pytest; pytest.main(['-p', 'django_lockstep.lab.pytest_plugin', '--race-record', 'pytest.ini'])"
    done = run_python(Project(tmp_path, sqlite()), program)
    assert ": name files with an equals sign, or pytest takes them for tests" in done.stderr


def test_django_that_is_not_set_up_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path, sqlite())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    assert "ERROR: --find-races: Requested setting LOGGING_CONFIG, but settings are not" in project.pytest(
        "--find-races"
    )
    assert project.status == pytest.ExitCode.USAGE_ERROR


def test_where_no_candidate_is_tried_the_last_line_and_the_status_say_so(project: Project) -> None:
    project.pytest("--find-races", "--race-budget=0", "--race-record=races.jsonl", "-k", "BookTests")
    assert project.status == 0
    for options, why in (
        (["--race-confirm=races.jsonl", "-k", "nowhere"], "its tests did not reach it"),
        (["--find-races", "--race-budget=0.0000001", "-k", "BookTests"], "the time was over"),
    ):
        assert f"\nNOTHING WAS LOOKED AT: none of 1 candidate was tried: {why}\n" in project.pytest(*options)
        assert project.status == 11


def test_a_report_on_candidates_has_them_not_tried(project: Project) -> None:
    project.pytest("--find-races", "--race-budget", "0", "--race-record", "races.jsonl", "--race-report", "first.json")

    first = json.loads((project.folder / "first.json").read_text())
    assert first["counts"] == {"confirmed": 0, "not confirmed": 0, "not tried": 1}
    assert first["candidates"][0]["write"]["path"] == "cinema/services.py"


ENDING = "--race-report races.pdf: the name of a report must end with one of .txt"


REFUSED = {
    "--race-confirm=pytest.ini": "--race-confirm: pytest.ini is not a recording",
    "--race-confirm=none": "--race-confirm: [Errno 2]",
    "--find-races --race-report=races.pdf": ENDING,
    "--find-races --race-report=none/races.json": "--race-report none/races.json: there is no folder",
    "--race-confirm=races.jsonl --race-report=races.pdf": ENDING,
    "--find-races --race-processes=0": "--race-processes: there must be at least 1, not 0",
    "--race-confirm=races.jsonl --race-processes=2": (
        "--race-processes: several try candidates after --find-races only; --race-confirm goes on in one"
    ),
}


def test_what_cannot_be_is_refused_before_any_test_runs(tmp_path: Path) -> None:
    sessions = [["-p", "django_lockstep.lab.pytest_plugin", *options.split()] for options in REFUSED]
    program = f"import pytest; [pytest.main(options) for options in {sessions}]"
    done = run_python(Project(tmp_path, sqlite()), program)
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]

    assert len(errors) == len(REFUSED), done.stderr
    assert [error for error, why in zip(errors, REFUSED.values(), strict=True) if not error.startswith(why)] == []
    assert "passed" not in done.stdout
