import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.races.mix import Mix
from django_lockstep.lab.simulator.plan import Plan


def test_with_a_duration_nobody_has_a_number() -> None:
    assert Plan(duration=2.0).operations_of(0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers must be a whole number of at least 1, not 0"),
        ({"workers": True}, "--workers"),
        ({"duration": 0.0}, "--duration must be more than 0 seconds"),
        ({"duration": float("inf")}, "--duration"),
        ({"duration": float("nan")}, "--duration"),
        ({"duration": None}, "give one of them"),
        ({"operations": 100}, "give one of them"),
        ({"duration": None, "operations": 0}, "--operations"),
        ({"duration": None, "operations": 7}, "--operations 7 is not one for each of 8 workers"),
        ({"laps": 0}, "--laps"),
        ({"duration": None, "operations": 20, "laps": 3}, "not one for each of 8 workers in each of 3 laps"),
        ({"think_time": -0.1}, "--think-time must be 0 seconds or more"),
        ({"think_time": float("nan")}, "--think-time"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**options)  # type: ignore[arg-type]


@given(workers=st.integers(1, 40), laps=st.integers(1, 5), more=st.integers(0, 500))
def test_operations_are_shared_out_among_workers_and_laps(workers: int, laps: int, more: int) -> None:
    plan = Plan(workers=workers, laps=laps, duration=None, operations=workers * laps + more)
    parts = [plan.operations_of(worker, lap=lap) or 0 for lap in range(laps) for worker in range(workers)]
    assert sum(parts) == plan.operations
    assert max(parts) - min(parts) <= 1


def test_a_lap_is_a_part_of_the_time() -> None:
    assert Plan(duration=3.0, laps=3).seconds == 1.0
    assert Plan(duration=None, operations=10).seconds is None


@pytest.mark.parametrize(
    ("plan", "words"),
    [(Plan(), "3 s"), (Plan(duration=0.5), "0.5 s"), (Plan(duration=None, operations=1200), "1,200 operations")],
)
def test_extent_in_words(plan: Plan, words: str) -> None:
    assert plan.extent == words


def test_mix_is_read_in_the_order_of_its_name() -> None:
    assert Mix.parse("2:1:0.5") == Mix(deposit=2, withdraw=1, transfer=0.5)


@pytest.mark.parametrize("text", ["1:1:0", "2:1:0.5", "0:0:3"])
def test_mix_is_written_as_it_is_read(text: str) -> None:
    assert str(Mix.parse(text)) == text


@pytest.mark.parametrize("text", ["", "1", "1:1", "1:1:1:1", "a:b:c", "1::1", "0:0:0", "-1:1:1", "nan:1:1", "inf:1:1"])
def test_bad_mix_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--mix"):
        Mix.parse(text)


def test_default_mix_has_transfers_only_where_there_are_two_accounts() -> None:
    assert Mix.default(accounts=1).transfer == 0
    assert Mix.default(accounts=2).transfer > 0
