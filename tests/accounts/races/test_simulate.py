"""The command: what it prints, how it ends, and what it leaves behind."""

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from accounts.management import simulate
from accounts.models import Entry
from accounts.races.run import NAMES, sizes_of
from tests.accounts.races.commands import any_left, manage, simulating
from tests.django_lockstep.lab.sample_rows import LOST, load_report, naive, row, sweep_report
from tests.support.sessions import ADVISORY_LOCKS, query, until
from tests.testapps.purses.models import Purse, PurseEntry


def run(**options: Any) -> str:
    out = io.StringIO()
    call_command("simulate", stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let the command report what the test puts here, instead of measuring; it records what was asked for."""
    seen: dict[str, Any] = {"report": load_report(naive(), row("pessimistic"))}

    def instead(config: Any, **options: Any) -> Any:
        seen.update(options, config=config)
        return seen["report"]

    monkeypatch.setattr(simulate, "run_load", instead)
    return seen


# What the options mean.


def test_by_default_all_strategies_share_a_hot_account(reported: dict[str, Any]) -> None:
    run()
    assert reported["config"].strategies == NAMES
    assert (reported["plan"].workers, reported["plan"].duration, reported["plan"].operations) == (8, 3.0, None)
    assert (reported["workload"].accounts, str(reported["workload"].mix)) == (1, "1:1:0")


def test_options_reach_the_plan(reported: dict[str, Any]) -> None:
    run(workers=3, operations=30, think_time=0.5, accounts=5, mix="1:2:3", seed=9)
    plan, workload = reported["plan"], reported["workload"]
    assert (plan.workers, plan.duration, plan.operations, plan.think_time) == (3, None, 30, 0.5)
    assert (workload.accounts, str(workload.mix), workload.seed) == (5, "1:2:3", 9)


@pytest.mark.parametrize(
    "names", [["naive,optimistic"], ["naive", "optimistic"], ["naive,", "optimistic,naive"]], ids=str
)
def test_names_are_separated_by_commas_or_spaces(names: list[str], reported: dict[str, Any]) -> None:
    run(strategies=names)
    assert reported["config"].strategies == ("naive", "optimistic")


def test_a_load_has_rounds_where_time_limits_it(reported: dict[str, Any]) -> None:
    run()
    assert reported["plan"].rounds == 3
    run(operations=30)
    assert reported["plan"].rounds == 1
    run(operations=30, rounds=2)
    assert reported["plan"].rounds == 2


def sizes(reported: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the numbers of workers and accounts at each size."""
    options = {name: reported[name] for name in ("sweep", "plan", "workload")}
    return [(plan.workers, workload.accounts) for _, plan, workload in sizes_of(**options)]


def test_a_sweep_has_sizes_and_says_how_long_it_takes(reported: dict[str, Any]) -> None:
    err = io.StringIO()
    call_command("simulate", sweep="workers=4,1, 4", strategies=["naive"], stdout=io.StringIO(), stderr=err)
    assert sizes(reported) == [(1, 1), (4, 1)]
    assert err.getvalue().startswith("2 sizes x 1 strategy x 3 s: about ")
    run(sweep="accounts=2,10", workers=3, operations=30)
    assert sizes(reported) == [(3, 2), (3, 10)]
    assert str(reported["workload"].mix) == "1:1:1"


def test_one_account_among_the_sizes_keeps_transfers_out_of_all(reported: dict[str, Any]) -> None:
    run(sweep="accounts=1,10")
    assert str(reported["workload"].mix) == "1:1:0"


def test_mixing_races_every_pair_of_the_safe_strategies_for_a_second(reported: dict[str, Any]) -> None:
    run(mix_strategies=True)
    config, plan = reported["config"], reported["plan"]
    assert (len(config.names), config.names[0]) == (28, "pessimistic+pessimistic_nowait")
    assert not any("naive" in name for name in config.names)
    assert (plan.duration, plan.rounds) == (1.0, 1)


def test_mixing_takes_the_strategies_that_are_named(reported: dict[str, Any]) -> None:
    run(mix_strategies=True, strategies=["advisory", "optimistic", "naive"], rounds=2, duration=4)
    config, plan = reported["config"], reported["plan"]
    assert config.names == ("advisory+optimistic", "advisory+naive", "optimistic+naive")
    assert (plan.duration, plan.rounds) == (4, 2)


def test_a_strategy_whose_package_is_missing_is_refused_or_left_out(
    reported: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "concurrency", None)
    with pytest.raises(CommandError, match="--strategies django_concurrency: the package of 'concurrency' is not inst"):
        run(strategies=["naive,django_concurrency"])
    options: Any
    for options in ({}, {"mix_strategies": True}):
        err = io.StringIO()
        call_command("simulate", stdout=io.StringIO(), stderr=err, **options)
        assert err.getvalue().startswith("Without django_concurrency, whose package is not installed.\n")
        assert "django_concurrency" not in reported["config"].strategies


BAD_MIXES = ("", "1", "1:1", "1:1:1:1", "a:b:c", "1::1", "0:0:0", "-1:1:1", "nan:1:1", "inf:1:1")
BAD_SWEEPS = ("", "workers", "workers=", "workers=a", "workers=1,,2", "speed=1", "accounts=-1")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--strategies", "naive,nonsense"], "--strategies must be some of naive, naive_atomic"),
        (["--workers", "0"], "--workers must be a positive integer, not 0"),
        (["--workers", "x"], "--workers"),
        *((["--duration", seconds], "--duration must be more than 0 seconds") for seconds in ("0", "inf", "nan")),
        (["--rounds", "0"], "--rounds"),
        (["--operations", "3"], "one for each of 8 workers"),
        (["--operations", "9", "--duration", "1"], "not allowed with"),
        *(([f"--mix={text}"], "--mix must be") for text in BAD_MIXES),
        (["--mix", "1:1:1"], "add --accounts 2 or more"),
        *((["--think-time", seconds], "--think-time must be") for seconds in ("-1", "nan")),
        (["--operations", "20", "--rounds", "3"], "one for each of 8 workers in each of 3 rounds"),
        *((["--sweep", text], "--sweep must be workers=N,N") for text in BAD_SWEEPS),
        (["--sweep", "workers=0,1"], "--sweep workers must be a positive integer, not 0"),
        (["--sweep", "workers=1,2", "--workers", "2"], "--workers is what --sweep varies"),
        (["--sweep", "workers=2,4", "--mix-strategies"], "not allowed with argument"),
        (["--sweep", "workers=2,4", "--clean"], "not allowed with argument"),
        (["--mix-strategies", "--workers", "1"], "two strategies and two workers, not 8 strategies and 1 worker"),
        (["--plot", "a.svg"], "--plot goes with --sweep"),
        (["--plot", "a.gif", "--sweep", "workers=1"], "must end with .svg or .png"),
        (["--plot", "/nowhere/a.svg", "--sweep", "workers=1"], "--plot /nowhere/a.svg: there is no folder"),
        (["--model", "accounts.Nothing"], "no such model"),
        (["--database", "nowhere"], "--database must be one of default, "),
        (["--output", "/nowhere/at/all.json"], "there is no folder /nowhere/at"),
        (["--output", "/"], "is a folder"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_explained_and_ends_with_2(
    args: list[str], words: str, reported: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        simulate.Command().run_from_argv(["manage.py", "simulate", "--skip-checks", *args])
    assert exit_info.value.code == 2
    assert words in capsys.readouterr().err
    assert "config" not in reported


# What comes out.


def test_the_report_goes_to_standard_output(reported: dict[str, Any]) -> None:
    assert "Which should I use?" in run()
    assert json.loads(run(format="json"))["kind"] == "load"


def test_the_report_goes_to_a_file_and_nowhere_else(reported: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    assert run(format="json", output=target) == ""
    assert json.loads(target.read_text())["kind"] == "load"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_device_is_written_to_and_not_replaced(reported: dict[str, Any]) -> None:
    run(format="json", output=Path("/dev/null"))
    assert not Path("/dev/null").is_file()


def test_a_sweep_is_drawn_beside_its_report(reported: dict[str, Any], tmp_path: Path) -> None:
    reported["report"] = sweep_report((1, row("a")))
    assert "Operations per second" in run(sweep="workers=1", plot=tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_notes_do_not_disturb_data(reported: dict[str, Any]) -> None:
    reported["report"] = load_report(row("pessimistic"), notes=("IdlePool: something.",))
    out, err = io.StringIO(), io.StringIO()
    call_command("simulate", format="json", stdout=out, stderr=err)
    assert json.loads(out.getvalue())["notes"] == ["IdlePool: something."]
    assert "IdlePool: something." in err.getvalue()


# How it ends.


def code_of(**options: Any) -> int:
    with pytest.raises(CommandError) as error:
        run(**options)
    return error.value.returncode


def test_check_is_satisfied_with_losers_that_claimed_nothing(reported: dict[str, Any]) -> None:
    run(check=True)


def test_check_ends_with_1_where_a_promise_was_broken(reported: dict[str, Any]) -> None:
    reported["report"] = load_report(row("liar", verdict=LOST))
    run()
    assert code_of(check=True) == 1
    reported["report"] = sweep_report((1, row("liar", verdict=LOST)))
    assert code_of(sweep="workers=1", check=True) == 1


def test_a_database_without_row_locks_is_refused(tmp_path: Path) -> None:
    ended = manage("simulate", DJANGO_SETTINGS_MODULE="tests.settings", DATABASE_URL=f"sqlite:///{tmp_path}/db")
    assert ended.returncode == 1
    assert "django.db.backends.sqlite3 (SQLite). The simulation needs real row locks" in ended.stderr
    assert ended.stdout == ""


# For real.


@pytest.mark.django_db(transaction=True)
def test_any_account_model_can_race() -> None:
    args = ("--model", "purses.Purse", "--accounts", "2", "--workers", "2", "--operations", "20")
    ended = manage("simulate", *args)
    assert ended.returncode == 0, ended.stderr
    assert "correct" in ended.stdout
    assert not PurseEntry.objects.exists()
    assert not Purse.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_ctrl_c_reports_what_was_measured_and_leaves_nothing() -> None:
    with simulating("--format", "json", "--duration", "60", "--workers", "3", "--strategies", "pessimistic") as process:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        until(lambda: not any_left(process.pid), "the end of all processes")
    data = json.loads(out)
    (row,) = data["strategies"]
    assert data["interrupted"] == "SIGINT"
    assert (row["cut_short"], row["verdict"], row["worker_failures"]) == (True, "correct", [])
    assert row["entries"] == row["succeeded"] > 0
    assert err.strip() == "CommandError: Interrupted by SIGINT"
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_said_in_a_sentence_and_leaves_nothing() -> None:
    with simulating("--format", "json", "--duration", "3", "--strategies", "pessimistic") as process:
        ended = f"SELECT count(pg_terminate_backend(pid)) FROM {ADVISORY_LOCKS}"
        assert query(ended) == 1
        _, err = process.communicate(timeout=120)
        assert process.returncode == 1
    assert err.startswith("CommandError: The connection to database 'default' was lost: terminating connection due to")
    assert "Traceback" not in err
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()
