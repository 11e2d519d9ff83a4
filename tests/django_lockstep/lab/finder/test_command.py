"""``manage.py find_races`` in a project of its own, on Django's test runner."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from django_lockstep.lab.finder.findings import Findings
from tests.django_lockstep.lab.finder.test_plugin import DEADLY, FEW, FILES, LEAVE, Project, postgresql, sqlite


@pytest.fixture
def project(tmp_path: Path, db: None) -> Project:
    settings = FILES["settings.py"].replace('["cinema"]', '["cinema", "django_lockstep.lab"]')
    return Project(tmp_path, postgresql(), **{"settings.py": settings})


def run(project: Project, *options: str, terminal: bool) -> tuple[int, str]:
    """Run the command, and return its status and what it has written; with a terminal, what that has shown."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "django", "find_races", "cinema", "--settings=settings", *options]
    with subprocess.Popen(
        command, cwd=project.folder, env={**project.env, "PYTHONPATH": f"{project.env['PYTHONPATH']}:."},
        stdout=writing, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        os.close(writing)
        shown = b""
        try:
            while part := os.read(reading, 65536):
                shown += part
        except OSError:  # a terminal that nobody writes to any more
            pass
        os.close(reading)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_a_race_is_confirmed_however_little_a_round_may_try(project: Project) -> None:
    with (project.folder / "cinema" / "test_services.py").open("a") as file:
        file.write(FEW)
    status, shown = run(project, terminal=False)

    assert status == 1, shown
    assert "1 candidate in 1 unit of work that write, from 1 test\n" in shown
    assert "\nconfirmed: read-modify-write" in shown
    assert "\n1. CONFIRMED: cinema.Show ends with " in shown
    assert "\x1b" not in shown


def test_a_terminal_has_a_line_that_says_how_far_it_has_come(project: Project) -> None:
    status, shown = run(project, "--budget=1m", terminal=True)

    assert status == 1, shown
    assert "\x1b[K0 of 1 candidate decided, 0 confirmed, 0 of 60 s" in shown
    assert "\x1b[K1 of 1 candidate decided, 1 confirmed, " in shown


def test_without_a_budget_candidates_are_only_listed(project: Project) -> None:
    status, shown = run(project, "--budget=0", terminal=False)

    assert status == 0, shown
    assert "\n1. read-modify-write" in shown
    assert "CONFIRMED" not in shown


def test_where_nothing_is_tried_the_last_line_and_the_status_say_so(project: Project) -> None:
    status, shown = run(project, "--budget=0.0000001", terminal=False)
    assert status == 4, shown
    assert shown.endswith("NOTHING WAS LOOKED AT: none of 1 candidate was tried: the time was over\n")

    project.database = sqlite()
    status, shown = run(project, "--budget=0", terminal=False)
    assert status == 4, shown
    assert "\nNOTHING WAS LOOKED AT: nothing that a test writes was recorded. Database 'default'" in shown


LEAVES = """
import os, signal
from pathlib import Path
from django.db import connection
from django.test import TestCase
from cinema.models import Show
from cinema.services import leave

class LeaveTests(TestCase):
    def test_it(self):
        show = Show.objects.create(title="Lear")
        if not connection.in_atomic_block:  # only where candidates are tried
            self.try_begins()
        leave(show.pk, 2)

    def try_begins(self):
        pass
"""
INTERRUPTED = """
    def try_begins(self):
        if not Path("interrupting").exists():
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        try:  # both processes come here: the first one has both interrupted
            Path("interrupted").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getppid(), signal.SIGINT)
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            os.read(reading, 1)  # until the interrupt is here
        signal.set_wakeup_fd(-1)
        if Path("impatient").exists():
            signal.raise_signal(signal.SIGINT)
"""


def add_leave(project: Project, test: str) -> None:
    (project.folder / "cinema/services.py").write_text(FILES["cinema/services.py"] + LEAVE)
    (project.folder / "cinema/test_leave.py").write_text(test)


def verdicts(project: Project, recording: str) -> dict[str, str]:
    findings = Findings.on(project.folder / recording).in_order()
    return {finding.candidate.unit: finding.verdict for finding in findings}


def databases(project: Project) -> list[str]:
    """Return the test databases of the project that are there."""
    with connection.cursor() as cursor:
        name = f"test_{project.database['NAME']}"
        cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s) ORDER BY 1", [name])
        return [name for (name,) in cursor]


def test_two_processes_find_both_races_each_in_a_database_of_its_own(project: Project) -> None:
    add_leave(project, LEAVES)
    status, shown = run(project, "--record=two.jsonl", "--report=two.txt", "--processes=2", "-v2", terminal=False)

    assert status == 1, shown
    units = ("cinema.services.book", "cinema.services.leave")
    assert verdicts(project, "two.jsonl") == dict.fromkeys(units, "confirmed")
    assert shown.count("\nconfirmed: read-modify-write") == 2
    assert (project.folder / "two.txt").read_text().count(". CONFIRMED: ") == 2
    first, second = (project.folder / f"two.jsonl.{name}" for name in ("log", "2.log"))
    name = f"test_{project.database['NAME']}"
    assert f"Creating test database for alias 'default' ('{name}')" in first.read_text()
    assert f"Creating test database for alias 'default' ('{name}_races2')" in second.read_text()
    assert databases(project) == []


@pytest.mark.parametrize(("processes", "is_impatient"), [(1, True), (2, False)])
def test_an_interrupted_search_drops_its_databases_and_can_be_continued(
    project: Project, processes: int, is_impatient: bool
) -> None:
    add_leave(project, LEAVES + INTERRUPTED)
    (project.folder / "interrupting").touch()
    if is_impatient:  # a second interrupt ends the test in hand
        (project.folder / "impatient").touch()
    status, shown = run(project, "--record=races.jsonl", f"--processes={processes}", terminal=False)
    assert status == 130, shown
    assert "\nInterrupted; --confirm=races.jsonl goes on from here\n" in shown
    assert "cinema.services.leave" not in verdicts(project, "races.jsonl")
    assert databases(project) == []

    (project.folder / "interrupting").unlink()
    status, shown = run(project, "--confirm=races.jsonl", terminal=False)
    assert status == 1, shown
    assert set(verdicts(project, "races.jsonl").values()) == {"confirmed"}


def test_a_process_that_dies_goes_on_behind_the_test_that_ended_it(project: Project) -> None:
    add_leave(project, DEADLY)
    status, shown = run(project, "--record=races.jsonl", "--processes=2", terminal=False)

    assert status == 1, shown
    assert "\nHow a session died: races.jsonl.log, races.jsonl.2.log\n" in shown
    assert "cinema.test_leave.DeadlyTests.test_it: the session that tries candidates died in it" in shown
    assert verdicts(project, "races.jsonl") == {
        "cinema.services.book": "confirmed",
        "cinema.services.leave": "not tried",
    }
    assert databases(project) == []


def test_a_process_that_fails_is_shown_and_its_status_is_that_of_the_command(project: Project) -> None:
    with (project.folder / "settings.py").open("a") as file:
        file.write('\nimport sys\nif "--share=2/2" in sys.argv:\n    print("No settings")\n    sys.exit(7)\n')
    status, shown = run(project, "--record=races.jsonl", "--processes=2", terminal=False)

    assert status == 7, shown
    assert "\nThe session that tries candidates ended with 7: races.jsonl.2.log\nNo settings\n" in shown
    assert "\n1. CONFIRMED: cinema.Show ends with " in shown


def manage(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**project.env, "PYTHONPATH": f"{project.env['PYTHONPATH']}:.", "DJANGO_SETTINGS_MODULE": "settings"}
    return subprocess.run(command, cwd=project.folder, env=env, capture_output=True, text=True, check=False)


def test_where_another_program_calls_the_command_processes_try_all_the_same(project: Project) -> None:
    call = "from django.core.management import execute_from_command_line as call; call(['it', 'find_races', 'cinema'])"
    done = manage(project, "-c", call)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "\n1. CONFIRMED: cinema.Show ends with " in done.stdout


def test_a_kept_test_is_run_by_djangos_runner_and_by_pytest(project: Project) -> None:
    status, shown = run(project, "--record=races.jsonl", "--report=races.json", terminal=False)
    assert status == 1, shown
    (candidate,) = json.loads((project.folder / "races.json").read_text())["candidates"]
    (project.folder / "cinema" / "test_kept.py").write_text(candidate["test_file"])

    commands = ["-m django test cinema.test_kept", "-m pytest cinema/test_kept.py -p no:cacheprovider"]
    for command in commands:
        done = manage(project, *command.split())
        assert done.returncode == 1, done.stdout + done.stderr
        assert "It races (broken): " in done.stdout + done.stderr
    fixed = FILES["cinema/services.py"].replace("show.free -= seats", 'Show.objects.update(free=F("free") - seats)')
    fixed = f"from django.db.models import F\n{fixed}".replace("    show.save()\n", "")
    (project.folder / "cinema" / "services.py").write_text(fixed)
    done = manage(project, *commands[0].split())
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_takes_what_the_projects_runner_takes(project: Project) -> None:
    status, shown = run(project, "--budget=0", "-k", "nothing_like_this", terminal=False)
    assert status == 4, shown
    status, shown = run(project, "--record=races.jsonl", "--keepdb", "-k", "BookTests", terminal=False)
    assert status == 1, shown
    assert "Preserving test database" in shown

    assert "Ran 1 test" in (project.folder / "races.jsonl.log").read_text()
    assert manage(project, "-m", "django", "test", "cinema", "--noinput").returncode == 0  # removes the database
