"""The pages of the isolation anomalies."""

import re
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from django_lockstep.lab import page_runs
from django_lockstep.lab.anomalies import published
from django_lockstep.lab.anomalies.access_patterns import LEVELS, STRATEGIES
from django_lockstep.lab.anomalies.definitions import ANOMALIES
from tests.support.sessions import Session, query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_no_scratch_left")]

TABLE = reverse("lockstep_lab:anomalies")


def page(anomaly: str, kind: str, column: str) -> str:
    return reverse("lockstep_lab:anomaly", args=[anomaly, kind, column])


LOST_UPDATE = page("P4", "level", "read-committed")
PREVENTED = page("P4", "strategy", "pessimistic")


@pytest.fixture(autouse=True)
def running(settings: Any) -> Any:
    settings.LOCKSTEP_LAB_RUNS_IN_PAGES = True
    return settings


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_user("grace", is_staff=True))
    return client


# Who is let in; the rest is with the races


def test_a_public_lab_is_open_to_everyone_and_asks_for_the_token(running: Any) -> None:
    running.LOCKSTEP_LAB_PUBLIC = True
    client = Client(enforce_csrf_checks=True)
    assert [client.get(url).status_code for url in (TABLE, LOST_UPDATE)] == [200, 200]
    assert client.post(LOST_UPDATE).status_code == 403


# What is shown


def test_the_list_of_races_and_the_table_link_each_other(staff: Client) -> None:
    races = reverse("lockstep_lab:races")
    assert f'<a href="{TABLE}">' in staff.get(races).content.decode()
    assert f'<a href="{races}">' in staff.get(TABLE).content.decode()


def test_every_cell_links_to_a_page_of_its_own(staff: Client) -> None:
    links = re.findall(rf'<td><a href="({TABLE}[^"]+)"', staff.get(TABLE).content.decode())
    assert len(set(links)) == len(links) == len(ANOMALIES) * (len(LEVELS) + len(STRATEGIES))
    assert {staff.get(link).status_code for link in links} == {200}


def test_the_table_has_the_published_results_and_says_where_they_are_from(staff: Client) -> None:
    text = staff.get(TABLE).content.decode()
    possible = re.findall(r'<a href="[^"]+" class="verdict broken">possible', text)
    assert len(possible) == sum(map(len, published.PUBLISHED.values()))
    assert f'<a href="{LOST_UPDATE}" class="verdict broken">possible' in text
    assert f'<a href="{page("P4", "level", "serializable")}" class="verdict holds">prevented' in text
    assert 'href="https://github.com/ept/hermitage"' in text


def test_for_strategies_nothing_is_published(staff: Client) -> None:
    assert f'<a href="{PREVENTED}">find out</a>' in staff.get(TABLE).content.decode()
    assert "Published result" not in staff.get(PREVENTED).content.decode()


def test_serializable_is_a_level_and_a_strategy(staff: Client) -> None:
    level, strategy = (staff.get(page("P4", kind, "serializable")).content.decode() for kind in ("level", "strategy"))
    assert "<h1>P4 at serializable</h1>" in level
    assert "<h1>P4 with serializable</h1>" in strategy


@pytest.mark.parametrize(
    "names",
    [("P5", "level", "serializable"), ("P4", "column", "serializable"), ("P4", "strategy", "read-committed")],
)
def test_an_unknown_cell_is_not_found(staff: Client, names: tuple[str, str, str]) -> None:
    assert staff.get(page(*names)).status_code == 404


def test_looking_runs_nothing(staff: Client) -> None:
    with patch.object(page_runs, "run_isolated") as run:
        staff.get(TABLE)
        staff.get(LOST_UPDATE)
        assert staff.post(TABLE).status_code == 405
    assert not run.called


# What is run


def test_a_possible_anomaly_comes_with_the_schedule_that_shows_it(staff: Client) -> None:
    text = staff.post(LOST_UPDATE).content.decode()
    assert '<span class="verdict broken">possible' in text
    (schedule,) = re.findall(r"Schedule ([AB]+) shows it\.", text)
    assert f"Schedule {schedule}: WRONG" in text
    assert "<svg" in text
    assert re.findall(r'<a href="#run-1-\d" aria-label="[^"]+">([AB])</a>', text) == [*schedule]
    assert "not as published" not in text


def test_a_prevented_one_says_what_was_explored_and_shows_what_prevents_it(staff: Client) -> None:
    text = staff.post(PREVENTED).content.decode()
    assert '<span class="verdict holds">prevented' in text
    assert re.search(r"Every interleaving was explored, in \d+ schedules\.", text)
    assert "waits: one transaction waited for a lock of the other" in text
    assert "waits for A on lockstep_lab_anomalies" in text


@pytest.mark.parametrize(("limit", "value"), [("MAX_SCHEDULES", 1), ("TIMEOUT", 0.001)])
def test_an_exploration_that_was_limited_is_incomplete(staff: Client, limit: str, value: float) -> None:
    with patch.object(page_runs, limit, value):
        text = staff.post(PREVENTED).content.decode()
    assert '<span class="verdict incomplete">incomplete' in text


def test_the_projects_database_gets_no_table(staff: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE lockstep_lab_anomalies (mine integer)")
    try:
        assert staff.post(LOST_UPDATE).status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE lockstep_lab_anomalies")


def test_it_works_with_a_transaction_for_each_request(staff: Client) -> None:
    with patch.dict(connection.settings_dict, {"ATOMIC_REQUESTS": True}):
        assert "verdict holds" in staff.post(PREVENTED).content.decode()


# What can be downloaded


@pytest.mark.parametrize(
    ("form", "contents"),
    [
        ("svg", ("<svg", "WRONG")),
        ("html", ("<!DOCTYPE html>", "P4", "possible")),
        ("py", ('select_cases(["P4"]', 'cell.verdict == "possible"')),
        ("spec", ("lockstep_lab_anomalies", "permutation")),
    ],
)
def test_what_a_cell_comes_to_can_be_downloaded(staff: Client, form: str, contents: tuple[str, ...]) -> None:
    assert f'<button name="download" value="{form}">' in staff.post(LOST_UPDATE).content.decode()
    file = staff.post(LOST_UPDATE, {"download": form})
    name = "test_P4_read_committed.py" if form == "py" else f"P4-read-committed.{form}"
    assert file["Content-Disposition"] == f'attachment; filename="{name}"'
    assert [part for part in contents if part not in file.content.decode()] == []


def test_a_downloaded_test_passes_where_the_case_ends_as_it_did(staff: Client) -> None:
    text = staff.post(PREVENTED, {"download": "py"}).content.decode()
    module: dict[str, Any] = {}
    exec(text, module)  # noqa: S102 - as pytest would import it
    module["test_p4_pessimistic"]()

    exec(text.replace('"prevented"', '"possible"'), module)  # noqa: S102 - as on another server
    with pytest.raises(AssertionError, match="Every interleaving was explored"):
        module["test_p4_pessimistic"]()


def test_other_forms_are_refused_before_anything_runs(staff: Client) -> None:
    with patch.object(page_runs, "run_isolated") as run:
        answer = staff.post(LOST_UPDATE, {"download": "exe"})
    assert (answer.status_code, run.called) == (400, False)


# What is refused


def test_nothing_runs_where_the_setting_is_off(staff: Client, running: Any) -> None:
    running.LOCKSTEP_LAB_RUNS_IN_PAGES = False
    with patch.object(page_runs, "run_isolated") as run:
        answer = staff.post(LOST_UPDATE)
    text = answer.content.decode()
    assert (answer.status_code, run.called) == (403, False)
    assert "LOCKSTEP_LAB_RUNS_IN_PAGES</code> is off" in text
    assert "<code>manage.py anomalies</code>" in text
    assert "<button" not in text


def test_one_page_at_a_time_whatever_it_runs(staff: Client, other: Session) -> None:
    other.run(lambda: query(page_runs._LOCK))
    answer = staff.post(LOST_UPDATE)
    assert (answer.status_code, "Another page is running" in answer.content.decode()) == (409, True)


def test_no_script_and_no_inline_style(staff: Client) -> None:
    for answer in (staff.get(TABLE), staff.post(LOST_UPDATE)):
        text = answer.content.decode()
        assert not [word for word in ("<script", "<style", " style=", "onclick", "javascript:") if word in text]
