"""The page of the races that ``--find-races`` has found."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

RECORDING = Path(project.BASE_DIR) / "bank" / "found_races.jsonl"
FINDINGS = RECORDING.with_name(f"{RECORDING.name}.findings")

pytestmark = pytest.mark.django_db


@pytest.fixture
def shown(client: Client, settings: Any) -> Any:
    """Return what shows the page of a recording, as text."""
    client.force_login(User.objects.create_user("grace", is_staff=True))

    def page(recording: Path | None) -> str:
        settings.LOCKSTEP_LAB_FOUND_RACES = recording
        answer = client.get(reverse("lockstep_lab:found"))
        assert answer.status_code == 200
        return answer.content.decode()

    return page


def test_without_a_recording_it_says_how_to_make_one(shown: Any) -> None:
    assert "pytest --find-races --race-record PATH" in shown(None)


def test_each_candidate_has_its_two_sites_its_timeline_and_a_test(shown: Any) -> None:
    text = shown(RECORDING)

    assert "2 candidates in 7 units of work that write, from 2 tests" in text
    assert "Suppressed: the strategy that shows what goes wrong without a lock" in text
    assert text.count("<h3>Reads accounts_account</h3>") == text.count("<h3>Writes accounts_account</h3>") == 2
    assert text.count("A test that fails as long as the race is there") == text.count("</svg>") == 2
    assert '<script src="/static/lockstep_lab/found_races.js"></script>' in text
    assert "<script>" not in text


def test_the_code_beside_a_site_is_that_of_today(shown: Any) -> None:
    """The demo's recording is made by the command that its settings name, once more when that code has moved."""
    text = shown(RECORDING)
    marked = [part.partition("</mark>")[0].rpartition("</span>")[2].strip() for part in text.split("<mark>")[1:]]

    assert len(marked) == 4
    assert {line.partition("(")[0] for line in marked} == {"account = self.accounts.get", "self.accounts.filter"}


def test_what_has_been_tried_since_is_shown(shown: Any, tmp_path: Path) -> None:
    recording = Path(shutil.copy(RECORDING, tmp_path))
    assert "nothing was tried yet" in shown(recording)

    shutil.copy(FINDINGS, tmp_path)
    assert "nothing was tried yet" not in shown(recording)


@pytest.mark.parametrize(("content", "problem"), [(None, "No such file"), ("{}\n", "is not a recording")])
def test_what_is_no_recording_is_said(shown: Any, tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "races.jsonl"
    if content is not None:
        path.write_text(content)

    assert problem in shown(path)
