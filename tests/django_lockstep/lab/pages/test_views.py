"""The pages of the lab."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_lockstep.lab import conf
from django_lockstep.lab.pages import exploring, process
from tests.django_lockstep.lab.pages.races import HERE
from tests.support.kept_runs import run_once
from tests.support.sessions import PATIENCE, until
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_no_scratch_left")]


@pytest.fixture(autouse=True)
def running(settings: Any, tmp_path: Path) -> Any:
    settings.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = True
    settings.LOCKSTEP_LAB_RACES = [f"{HERE}.{name}" for name in ("NAIVE", "LOCKED", "NESTED")]
    return settings


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_user("grace", is_staff=True))
    return client


def page(name: str) -> str:
    return reverse("lockstep_lab:race", args=[f"{HERE}.{name}"])


def explored(client: Client, url: str, schedule: str = "") -> str:
    """Start a run from the race's page, and return what the page shows when it has ended."""
    answer = client.post(url, {"schedule": schedule})
    url += f"?schedule={schedule}" if schedule else ""
    assert (answer.status_code, answer["Location"]) == (302, url)
    return after_the_run(client, url)


def explored_once(client: Client, schedule: str = "") -> str:
    """Return what the page of `NAIVE` shows after a run, which only the first test that asks for it starts."""
    run_once(f"{HERE}.NAIVE {schedule}", lambda: explored(client, page("NAIVE"), schedule))
    return client.get(page("NAIVE"), {"schedule": schedule} if schedule else {}).content.decode()


def after_the_run(client: Client, url: str) -> str:
    """Return what the page shows when the run has ended."""
    until(lambda: "Running now" not in client.get(url).content.decode(), "the run to end", patience=4 * PATIENCE)
    return client.get(url).content.decode()


# Who is let in

PAGES = (
    reverse("lockstep_lab:races"),
    page("NAIVE"),
    reverse("lockstep_lab:anomalies"),
    reverse("lockstep_lab:found"),
    reverse("lockstep_lab:found_report", args=["html"]),
    reverse("lockstep_lab:found_file", args=["1", "py"]),
    reverse("lockstep_lab:race", args=["anomaly:P4:read-committed"]),
    reverse("lockstep_lab:report", args=[f"{HERE}.NAIVE", "html"]),
    reverse("lockstep_lab:schedule", args=[f"{HERE}.NAIVE", "AABBAB", "html"]),
)


@pytest.mark.parametrize("url", PAGES)
def test_others_are_asked_to_log_in_and_refused_unless_they_are_staff(client: Client, url: str) -> None:
    answer = client.get(url)
    assert (answer.status_code, answer["Location"].endswith(f"?next={quote(url)}")) == (302, True)
    client.force_login(User.objects.create_user("ada"))
    assert client.get(url).status_code == 403


def test_a_public_lab_is_open_to_everyone_and_asks_for_the_token(running: Any) -> None:
    running.LOCKSTEP_LAB_PUBLIC = True
    client = Client(enforce_csrf_checks=True)
    assert client.get(page("NAIVE")).status_code == 200
    assert client.post(page("NAIVE")).status_code == 403


# What is shown


def test_the_list_is_searched_by_words_of_name_and_text(staff: Client, running: Any) -> None:
    running.LOCKSTEP_LAB_RACES = ["accounts.races.ready_made.RACES"]
    text = staff.get(reverse("lockstep_lab:races"), {"q": "Deadlock transfers"}).content.decode()
    assert re.findall(r'scope="row"><a href="[^"]+">([^<]+)', text) == ["transfers:unordered"]
    assert re.findall(r'scope="rowgroup" colspan="5">([^<]+)', text) == ["transfers"]
    assert "No race has these words." in staff.get(reverse("lockstep_lab:races"), {"q": "cow"}).content.decode()


def test_a_race_shows_its_code_and_its_expectation_before_it_is_run(staff: Client) -> None:
    text = staff.get(page("NAIVE")).content.decode()
    assert "Every order must end right." in text
    for part in ("What runs at the same time", "What must be true at the end", 'class="code-line'):
        assert part in text


def test_the_races_of_the_setting_are_listed(staff: Client, running: Any) -> None:
    text = staff.get(reverse("lockstep_lab:races")).content.decode()
    assert f'<a href="{page("NAIVE")}">{HERE}.NAIVE</a>' in text
    del running.LOCKSTEP_LAB_RACES
    text = staff.get(reverse("lockstep_lab:races")).content.decode()
    assert "No race is registered in LOCKSTEP_LAB_RACES." in text


def test_looking_runs_nothing(staff: Client) -> None:
    with patch.object(process, "_start_python") as run:
        staff.get(page("NAIVE"), {"schedule": "AABBAB"})
    assert not run.called


# What is run


def test_a_race_is_explored_and_drawn_beside_the_rows_of_the_project(staff: Client) -> None:
    seat = Seat.objects.create(price=4711)
    text = explored(staff, page("NAIVE"))

    assert "4711" not in text
    assert list(Seat.objects.values_list("pk", "price")) == [(seat.pk, 4711)]
    for part in ('<span class="verdict broken">broken</span>', "<svg", "Last explored: ", "Every schedule, as a tree"):
        assert part in text
    assert "lost update: B wrote price 110.00 computed from 100.00" in text
    assert f'<a href="{page("NAIVE")}?schedule=AABBAB">AABBAB</a>' in text
    # Outcomes are cards.
    assert "<dd>lost update</dd>" in text
    assert (text.count("never ends so"), text.count("would end the same")) == (1, 1)
    has_no_script_and_no_inline_style(text)


def test_a_schedule_is_filled_in_by_the_link_and_replayed_by_the_button(staff: Client) -> None:
    assert 'value="AABBAB"' in staff.get(page("NAIVE"), {"schedule": "AABBAB"}).content.decode()
    answer = staff.post(page("NAIVE"), {"schedule": "aaabbb "})
    assert answer["Location"] == f"{page('NAIVE')}?schedule=AAABBB"
    text = after_the_run(staff, answer["Location"])
    assert "Schedule AAABBB: right" in text
    assert text.count("<svg") == 2  # a wide drawing and a narrow one


def test_each_step_can_be_gone_to_by_a_plain_link_and_shows_what_is_committed_and_seen(staff: Client) -> None:
    text = explored_once(staff, "AABBAB")
    assert re.findall(r'<a href="#run-1-\d" aria-label="[^"]+">([AB])</a>', text) == [*"AABBAB"]
    assert set(re.findall(r'href="#([^"]+)"', text)) == set(re.findall(r'<section class="move" id="([^"]+)"', text))
    assert "<h4" in text
    assert "Step 4 of 6: B" in text
    assert "explorer/stories.py:" in text
    second = text.partition("Step 2 of 6: A")[2].partition("Step 3 of 6: B")[0]
    committed, seen = re.findall(r'<dt>(Committed|Seen by A)</dt><dd class="seen">(.*?)</dd>', second)
    assert (committed[0], seen[0]) == ("Committed", "Seen by A")
    assert "price=100.00" in committed[1]
    assert "price=110.00" in seen[1]


def test_a_right_race_shows_how_the_actors_meet_also_with_a_transaction_for_each_request(staff: Client) -> None:
    with patch.dict(connection.settings_dict, {"ATOMIC_REQUESTS": True}):
        right = explored(staff, page("LOCKED"))
    assert "verdict holds" in right
    assert "Schedule ABAABB: right" in right
    assert "waits for A on shop_seat" in right


def test_requests_are_bounded(staff: Client) -> None:
    with patch.object(exploring, "MAX_SCHEDULES", 1):
        text = explored(staff, page("LOCKED"))
    assert '<span class="verdict incomplete">incomplete</span>' in text


# What can be downloaded


NAME = "tests-django_lockstep-lab-pages-races-NAIVE"
SCHEDULES = {
    "svg": ("image/svg+xml", f"{NAME}-AABBAB.svg", ("<svg", "Schedule AABBAB")),
    "html": ("text/html", f"{NAME}-AABBAB.html", ("<!DOCTYPE html>", "Schedule AABBAB")),
    # With a name by which pytest finds it.
    "py": ("text/x-python", "test_tests_django_lockstep_lab_pages_races_NAIVE_AABBAB.py", ("race.replay(",)),
}
REPORTS = {
    "html": ("text/html", f"{NAME}.html", ("<!DOCTYPE html>", "Every schedule, as a tree", "wrong (Outcome 1)")),
    "json": ("application/json", f"{NAME}.json", ('"verdict": "broken"',)),
}


@pytest.mark.parametrize(
    ("view", "schedule", "files"),
    [("schedule", ["AABBAB"], SCHEDULES), ("report", [], REPORTS)],
    ids=["a schedule", "an exploration"],
)
def test_what_was_run_can_be_downloaded_without_another_run(
    staff: Client, view: str, schedule: list[str], files: dict[str, tuple[str, str, tuple[str, ...]]]
) -> None:
    urls = {form: reverse(f"lockstep_lab:{view}", args=[f"{HERE}.NAIVE", *schedule, form]) for form in files}
    assert {staff.get(url).status_code for url in urls.values()} == {404}  # as long as it was not
    text = explored_once(staff, *schedule)

    for form, (content_type, name, contents) in files.items():
        assert f'href="{urls[form]}"' in text
        with patch.object(process, "_start_python") as run:
            file = staff.get(urls[form])
        assert not run.called
        assert file["Content-Type"] == f"{content_type}; charset=utf-8"
        assert file["Content-Disposition"] == f'attachment; filename="{name}"'
        assert [part for part in contents if part not in file.content.decode()] == []


def test_other_races_schedules_and_forms_are_not_found(staff: Client) -> None:
    explored_once(staff, "AABBAB")
    for view, args in (
        ("race", [f"{HERE}.NOBODY"]),
        ("report", [f"{HERE}.NAIVE", "exe"]),
        ("report", ["unknown", "html"]),
        ("schedule", [f"{HERE}.NAIVE", "AABBAB", "exe"]),
        ("schedule", [f"{HERE}.NAIVE", "ABBA", "svg"]),
    ):
        assert staff.get(reverse(f"lockstep_lab:{view}", args=args)).status_code == 404, (view, args)


# Anomalies


def test_the_table_of_anomalies_leads_to_races(staff: Client) -> None:
    text = staff.get(reverse("lockstep_lab:anomalies")).content.decode()
    links = re.findall(r'<td><a href="([^"]+)" class="verdict (?:broken|holds)">(possible|prevented)</a>', text)
    assert [len(links), sum(word == "possible" for _, word in links)] == [30, 7]
    url = reverse("lockstep_lab:race", args=["anomaly:P4:read-committed"])
    assert (url, "possible") in links
    assert "waits for A on lockstep_lab_anomalies" in explored(staff, url)


# What is refused


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("AXB", "has &#x27;X&#x27; at step 2"),
        ("<script>", "has &#x27;&lt;&#x27; at step 1"),
        ("A" * 501, "501 moves is too long"),
    ],
)
def test_a_schedule_that_the_race_has_not_is_refused(staff: Client, schedule: str, complaint: str) -> None:
    for answer in (
        staff.post(page("NAIVE"), {"schedule": schedule}, follow=True),
        staff.get(page("NAIVE"), {"schedule": schedule}),
    ):
        assert (answer.status_code, complaint in answer.content.decode()) == (400, True)


def test_a_schedule_in_which_an_actor_cannot_move_is_refused_by_its_run(staff: Client) -> None:
    assert "which waits or is done" in explored(staff, page("NAIVE"), "AAAA")


def test_nothing_runs_where_the_setting_is_off(staff: Client, running: Any) -> None:
    running.LOCKSTEP_LAB_RUNS_IN_PAGES = False
    with patch.object(process, "_start_python") as run:
        answer = staff.post(page("NAIVE"))

    assert answer.status_code == 403
    assert "LOCKSTEP_LAB_RUNS_IN_PAGES</code> is off" in answer.content.decode()
    assert "<form" not in answer.content.decode()
    assert not run.called


def test_where_the_folder_cannot_be_made_the_page_says_so(staff: Client, running: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    running.LOCKSTEP_LAB_LIVE_FOLDER = tmp_path / "file" / "live"
    answer = staff.post(page("NAIVE"))
    assert (answer.status_code, "LOCKSTEP_LAB_LIVE_FOLDER" in answer.content.decode()) == (503, True)


@pytest.mark.parametrize("debug", [True, False])
def test_the_settings_default_is_debug(running: Any, debug: bool) -> None:
    del running.LOCKSTEP_LAB_RUNS_IN_PAGES
    running.DEBUG = debug
    assert conf.runs_in_pages() is debug


# Safe to show


def test_what_a_race_shows_is_escaped_and_what_it_prints_is_not_its_result(staff: Client) -> None:
    text = explored(staff, page("NESTED"))
    assert "verdict vacuous" in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def has_no_script_and_no_inline_style(text: str) -> None:
    assert not [word for word in ("<script>", "<style", " style=", "onclick", "javascript:") if word in text]


def test_the_list_has_no_script_and_no_inline_style(staff: Client) -> None:
    has_no_script_and_no_inline_style(staff.get(reverse("lockstep_lab:races")).content.decode())
