"""Tests of every form are recorded and forked: of two databases, with fixtures, on a live server, in plain classes."""

import json
from pathlib import Path

import pytest

from django_lockstep.lab.finder.findings import Findings
from tests.django_lockstep.lab.finder.test_plugin import FILES, Project, postgresql, verdicts

SETTINGS = f"""{FILES["settings.py"]}
DATABASES["other"] = {{**DATABASES["default"], "NAME": DATABASES["default"]["NAME"] + "_other"}}
ROOT_URLCONF = "cinema.urls"
STATIC_URL = "/static/"
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from cinema import services
from cinema.models import Show

def view(request, pk):
    services.book_by_request(pk)
    return HttpResponse()

async def asynchronous_view(request, pk):
    show = await Show.objects.aget(pk=pk)
    show.free -= int(request.GET["seats"])
    await show.asave()
    return HttpResponse()

urlpatterns = [path("book/<int:pk>/", view), path("later/<int:pk>/", asynchronous_view)]
"""
API = """
from ninja import NinjaAPI
from cinema import services

api = NinjaAPI()

@api.post("/book/{pk}")
def book_by_api(request, pk: int):
    services.book_in_ninja(pk)
    return {}
"""
_SERVICE = """

def {name}(pk):
    show = Show.objects.using("{alias}").get(pk=pk)
    show.free -= 1
    show.save(using="{alias}")
"""
NAMES = (
    "in_class",
    "in_function",
    "in_plain_class",
    "with_fixtures",
    "with_data",
    "by_request",
    "in_ninja",
    "in_group",
    "after_failure",
)
SERVICES = "from cinema.models import Show\n" + "".join(
    _SERVICE.format(name=f"book_{name}", alias="default") for name in NAMES
)
LATER = "GET later/<int:pk>/"
UNITS = {*NAMES, "in_other", "GET book/<int:pk>/", "cinema.api.book_by_api"} - {"by_request", "in_ninja"}
SERVICES += _SERVICE.format(name="book_in_other", alias="other")
TESTS = """
from urllib.request import urlopen
import pytest
from django.test import LiveServerTestCase, TestCase, TransactionTestCase
from ninja.testing import TestClient
from cinema import services
from cinema.api import api
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

class LaterTests(TransactionTestCase):
    async def test_it(self):
        show = await Show.objects.acreate(title="Hamlet")
        response = await self.async_client.get(f"/later/{show.pk}/?seats=1")
        assert response.status_code == 200

@pytest.mark.django_db
def test_by_the_client_of_an_api():
    assert TestClient(api).post(f"/book/{make()}").status_code == 200

@pytest.mark.django_db
@pytest.mark.xdist_group("slow")
def test_in_a_group():
    services.book_in_group(make())

@pytest.mark.django_db
def test_that_fails():
    assert not Show.objects.exists()
    services.book_after_failure(make())
    assert 1 == 2
"""


@pytest.fixture
def project(tmp_path: Path, db: None) -> Project:
    files = {
        "settings.py": SETTINGS,
        "cinema/api.py": API,
        "cinema/urls.py": URLS,
        "cinema/services.py": SERVICES,
        "cinema/test_services.py": TESTS,
        "cinema/fixtures/shows.json": json.dumps([{"model": "cinema.show", "pk": 77, "fields": {"title": "Macbeth"}}]),
    }
    return Project(tmp_path, postgresql(), **files)


def test_each_is_confirmed_and_its_test_file_fails(project: Project) -> None:
    printed = project.pytest("--find-races", "--race-record=races.jsonl", "-n2", "--dist=loadgroup")
    record = project.folder / "races.jsonl"
    findings = Findings.on(record).in_order()

    assert "1 failed, 10 passed" in printed, printed
    by_unit = {it.candidate.unit.removeprefix("cinema.services.book_"): it for it in findings}
    later = by_unit.pop(LATER)
    assert (later.verdict, later.reason) == ("not tried", "asynchronous requests are not raced")
    assert by_unit.keys() == UNITS, printed
    assert [finding.reason for finding in by_unit.values() if finding.verdict != "confirmed"] == [], printed
    assert all("A, B, one after the other" in finding.reason for finding in by_unit.values())

    for number, finding in enumerate(by_unit.values()):
        (project.folder / "cinema" / f"test_race_{number}.py").write_text(finding.test_file)
    again = project.pytest("-k", "does_not_race", "cinema")
    assert f"{len(by_unit)} failed" in again, again
    # The one that fails anyway says how.
    assert verdicts(again) == ["broken"] * (len(by_unit) - 1)
