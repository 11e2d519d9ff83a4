import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.races.load import Mix
from django_lockstep.lab.simulator.load_plan import LoadPlan


def test_with_a_duration_no_worker_has_a_number_of_operations() -> None:
    assert LoadPlan(duration=2.0).operations_of(0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers must be a positive integer, not 0"),
        ({"workers": True}, "--workers"),
        ({"duration": 0.0}, "--duration must be more than 0 seconds"),
        ({"duration": float("inf")}, "--duration"),
        ({"duration": float("nan")}, "--duration"),
        ({"duration": None}, "give one of them"),
        ({"operations": 100}, "give one of them"),
        ({"duration": None, "operations": 0}, "--operations"),
        ({"duration": None, "operations": 7}, "--operations must be at least 8, one for each of 8 workers, not 7"),
        ({"rounds": 0}, "--rounds"),
        ({"duration": None, "operations": 20, "rounds": 3}, "one for each of 8 workers in each of 3 rounds"),
        ({"think_time": -0.1}, "--think-time must be 0 seconds or more"),
        ({"think_time": float("nan")}, "--think-time"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoadPlan(**options)  # type: ignore[arg-type]


@given(workers=st.integers(1, 40), rounds=st.integers(1, 5), more=st.integers(0, 500))
def test_operations_are_shared_out_among_workers_and_rounds(workers: int, rounds: int, more: int) -> None:
    plan = LoadPlan(workers=workers, rounds=rounds, duration=None, operations=workers * rounds + more)
    parts = [
        plan.operations_of(worker, round_number=round_number) or 0
        for round_number in range(rounds)
        for worker in range(workers)
    ]
    assert sum(parts) == plan.operations
    assert max(parts) - min(parts) <= 1


def test_a_round_is_a_part_of_the_time() -> None:
    assert LoadPlan(duration=3.0, rounds=3).seconds == 1.0
    assert LoadPlan(duration=None, operations=10).seconds is None


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (LoadPlan(), "3 s"),
        (LoadPlan(duration=0.5), "0.5 s"),
        (LoadPlan(duration=None, operations=1200), "1,200 operations"),
    ],
)
def test_extent_in_words(plan: LoadPlan, words: str) -> None:
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
