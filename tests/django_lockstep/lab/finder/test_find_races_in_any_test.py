"""Tests of every form are recorded and forked: of two databases, with fixtures, on a live server, in plain classes."""

import json
from pathlib import Path

import pytest

from django_lockstep.lab.finder.findings import Findings
from tests.django_lockstep.lab.finder.test_plugin import FILES, Project, postgresql

SETTINGS = f"""{FILES["settings.py"]}
DATABASES["other"] = {{**DATABASES["default"], "NAME": DATABASES["default"]["NAME"] + "_other"}}
ROOT_URLCONF = "cinema.urls"
STATIC_URL = "/static/"
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from cinema import services

def view(request, pk):
    services.book_by_request(pk)
    return HttpResponse()

urlpatterns = [path("book/<int:pk>/", view)]
"""
_SERVICE = """

def {name}(pk):
    show = Show.objects.using("{alias}").get(pk=pk)
    show.free -= 1
    show.save(using="{alias}")
"""
NAMES = ("in_class", "in_function", "in_plain_class", "with_fixtures", "with_data", "by_request", "after_failure")
SERVICES = "from cinema.models import Show\n" + "".join(
    _SERVICE.format(name=f"book_{name}", alias="default") for name in NAMES
)
UNITS = {*NAMES, "in_other", "GET book/<int:pk>/"} - {"by_request"}
SERVICES += _SERVICE.format(name="book_in_other", alias="other")
TESTS = """
from urllib.request import urlopen
import pytest
from django.test import LiveServerTestCase, TestCase, TransactionTestCase
from cinema import services
from cinema.models import Show

def make(alias="default"):
    return Show.objects.using(alias).create(title="Hamlet").pk

class OtherTests(TestCase):
    databases = {"default", "other"}

    def test_it(self):
        services.book_in_other(make("other"))

class SerializedTests(TransactionTestCase):
    serialized_rollback = True

    def test_it(self):
        services.book_in_class(make())

@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_function(tmp_path):
    assert not Show.objects.using("other").exists()
    services.book_in_function(make())

class TestPlain:
    def setup_method(self):
        self.ready = True

    @pytest.mark.django_db
    def test_it(self):
        assert self.ready
        services.book_in_plain_class(make())

class FixtureTests(TestCase):
    fixtures = ["shows.json"]

    def test_it(self):
        services.book_with_fixtures(77)

class DataTests(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.pk = make()

    def test_it(self):
        services.book_with_data(self.pk)

class ServerTests(LiveServerTestCase):
    def test_it(self):
        with urlopen(f"{self.live_server_url}/book/{make()}/") as response:
            assert response.status == 200

@pytest.mark.django_db
def test_that_fails():
    assert not Show.objects.exists()
    services.book_after_failure(make())
    assert 1 == 2
"""


@pytest.fixture
def project(tmp_path: Path, db: None) -> Project:
    made = Project(tmp_path, postgresql())
    fixture = [{"model": "cinema.show", "pk": 77, "fields": {"title": "Macbeth"}}]
    files = {
        "settings.py": SETTINGS,
        "cinema/urls.py": URLS,
        "cinema/services.py": SERVICES,
        "cinema/test_services.py": TESTS,
        "cinema/fixtures/shows.json": json.dumps(fixture),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return made


def test_each_is_confirmed_and_its_test_file_fails(project: Project) -> None:
    printed = project.pytest("--find-races", "--race-record=races.jsonl")
    record = project.folder / "races.jsonl"
    pairs = Findings.on(record).pairs()

    assert "1 failed, 7 passed" in printed, printed
    found = {candidate.unit.removeprefix("cinema.services.book_"): finding for candidate, finding in pairs}
    assert found.keys() == UNITS, printed
    assert {finding.verdict for finding in found.values()} == {"confirmed"}, printed
    assert all("A, B, one after the other" in finding.reason for finding in found.values())

    for number, finding in enumerate(found.values()):
        (project.folder / "cinema" / f"test_race_{number}.py").write_text(finding.test_file)
    again = project.pytest("-k", "does_not_race", "cinema")
    assert f"{len(found)} failed" in again, again
    # The one that fails anyway says how.
    assert again.count("It races (broken)") == len(found) - 1, again
