"""The page of the races that ``--find-races`` has found."""

import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.conf import settings as project
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_lockstep.lab.finder.findings import Findings
from django_lockstep.lab.finder.report.races import Report
from django_lockstep.lab.finder.report.text import as_text

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

    assert re.search(r"19 candidates in \d+ units of work that write, from 54 tests", text)
    assert text.count('class="verdict confirmed"') == 12  # thirteen candidates, two of which are one race
    assert text.count("<h3>Reads racing_product</h3>") == text.count("<h3>Writes racing_product</h3>") == 1
    assert text.count("A test that fails as long as the race is there") == text.count("</svg>") == 12
    assert '<h2 dir="auto">There is one racing.Booking too many (seat=A1, guest=Ada, show_id=1).</h2>' in text
    assert "<strong>1</strong> not the request by two users: the request has no user" in text
    assert '<script src="/static/lockstep_lab/found_races.js"></script>' in text
    assert "<script>" not in text


def test_what_the_readme_shows_is_in_the_report() -> None:
    readme = (Path(project.BASE_DIR) / "README.md").read_text()
    lines = readme.partition("$ pytest --find-races")[2].partition("```")[0].splitlines()[1:]

    assert len(lines) == 2
    assert "\n".join(lines) in as_text(Report(Findings.on(RECORDING), {}, root=Path(project.BASE_DIR)))


def test_the_code_beside_a_site_is_that_of_today(shown: Any) -> None:
    """The demo's recording is made by the command that its settings name, once more when that code has moved."""
    text = shown(RECORDING)
    marked = [part.partition("</mark>")[0].rpartition("</span>")[2].strip() for part in text.split("<mark>")[1:]]

    assert len(marked) == 24
    assert "Coupon.objects.filter(pk=coupon.pk).update(used=F(&quot;used&quot;) + 1)" in marked


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


# What can be downloaded


def links(text: str) -> list[str]:
    return re.findall(r'<p class="downloads">.*?</p>', text)


@pytest.mark.parametrize(
    ("form", "content_type", "content"),
    [
        ("html", "text/html", "<!DOCTYPE html>"),
        ("json", "application/json", '"candidates"'),
        ("sarif", "application/sarif+json", '"version": "2.1.0"'),
        ("xml", "application/xml", "<testsuite"),
    ],
)
def test_the_report_can_be_downloaded(shown: Any, client: Client, form: str, content_type: str, content: str) -> None:
    url = reverse("lockstep_lab:found_report", args=[form])
    assert f'href="{url}"' in links(shown(RECORDING))[0]
    file = client.get(url)
    assert file["Content-Disposition"] == f'attachment; filename="races-found.{form}"'
    assert file["Content-Type"] == f"{content_type}; charset=utf-8"
    assert content in file.content.decode()
    assert 'class="downloads"' not in file.content.decode()  # a file has no pages to link to


def test_of_each_confirmed_race_the_drawing_and_the_test_can_be_downloaded(shown: Any, client: Client) -> None:
    urls = [url for line in links(shown(RECORDING))[1:] for url in re.findall(r'href="([^"]+)"', line)]
    assert len(urls) == 12 + 12
    drawing, test = (client.get(url) for url in urls[:2])
    assert drawing["Content-Type"].startswith("image/svg+xml")
    assert b"<style>" in drawing.content
    ET.fromstring(drawing.content)  # noqa: S314 - our own
    assert re.search(r'filename="test_race_\w+\.py"', test["Content-Disposition"])
    compile(test.content, "test.py", "exec")


@pytest.mark.parametrize("path", ["report.exe", "unknown.svg"])
@pytest.mark.parametrize("recording", [RECORDING, None, Path("gone.jsonl")])
def test_what_is_not_there_is_not_found(shown: Any, client: Client, path: str, recording: Path | None) -> None:
    shown(recording)
    assert client.get(f"{reverse('lockstep_lab:found')}{path}").status_code == 404


def test_a_race_that_was_not_confirmed_has_no_test(shown: Any, client: Client, tmp_path: Path) -> None:
    text = shown(Path(shutil.copy(RECORDING, tmp_path)))
    (candidate, *_) = re.findall(r'id="candidate-(\w+)"', text)
    assert len(links(text)) == 1
    assert client.get(reverse("lockstep_lab:found_file", args=[candidate, "py"])).status_code == 404
