"""The tutorial, page by page, in a project that has installed the library: what it says is what happens.

Its pictures are made here; ``WRITE_PICTURES=1 pytest -m installed tests/installed/test_tutorial.py`` writes them anew.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.installed.conftest import Databases, Projects
from tests.installed.project import Project
from tests.support import pages

LEARN = pages.ROOT / "docs" / "learn"
# The page's picture, and the file that the commands of that page make.
PICTURES = {
    "lost-update.svg": "pictures/test_two_withdrawals-1.svg",
    "atomic.svg": "pictures/test_two_withdrawals-2.svg",
    "check-then-act.svg": "pictures/test_the_balance_stays_above_zero-1.svg",
    "deadlock.svg": "pictures/test_opposite_transfers-1.svg",
    "locked.svg": "locked.svg",
    "compared.svg": "compared.svg",
}


@pytest.fixture(scope="module")
def project(start_project_with_lab: Projects, make_database: Databases) -> Project:
    """The project at the end of the tutorial."""
    project = start_project_with_lab("till")
    project.manage("startapp", "wallets")
    apps = ["django_lockstep", "django_lockstep.lab", "wallets"]
    database = make_database("till")
    # Made and dropped by each `pytest`, as in a reader's project: the pictures name keys.
    project.configure(apps=apps, database={**database, "TEST": {"NAME": f"test_{database['NAME']}"}})
    for page in ("lost-update", "transactions", "pessimistic", "optimistic"):
        for step in pages.steps((LEARN / f"{page}.md").read_text("utf-8")):
            if isinstance(step, pages.File):
                project.write(step.path, step.text.replace("till.settings", "site_of_others.settings"))
            else:
                follow(project, step, page)
    return project


def follow(project: Project, command: pages.Command, page: str) -> None:
    """Run the command; it prints what the page says, and fails only where the page says that something failed."""
    program, *arguments = shlex.split(command.line)
    python = arguments if program == "python" else ["-m", program, "-p", "no:cacheprovider", *arguments]
    done: subprocess.CompletedProcess[str] = project.run(*python, COLUMNS="200")
    printed = done.stdout + done.stderr
    assert not pages.missing(command, printed), f"{page}: $ {command.line}\n{printed}"
    fails = any(line.endswith("failed") for line in command.output)
    assert done.returncode == int(fails), f"{page}: $ {command.line}\n{printed}"


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_what_the_page_made(project: Project, name: str) -> None:
    picture = (project.folder / PICTURES[name]).read_text("utf-8")
    if os.environ.get("WRITE_PICTURES"):
        (LEARN / name).write_text(picture, "utf-8")
    assert (LEARN / name).read_text("utf-8") == picture


def test_every_picture_is_on_a_page() -> None:
    shown = "".join(page.read_text("utf-8") for page in LEARN.glob("*.md"))
    assert all(f"{{image}} {path.name}\n" in shown for path in Path(LEARN).glob("*.svg"))
