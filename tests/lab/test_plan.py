import pytest

from accounts.lab.scenarios.mix import Mix
from accounts.lab.simulator.plan import Plan


@pytest.mark.parametrize(("operations", "workers"), [(10, 3), (8, 8), (9, 8), (100, 7)])
def test_operations_are_shared_out_evenly(operations: int, workers: int) -> None:
    plan = Plan(workers=workers, duration=None, operations=operations)
    parts = [plan.operations_of(worker) or 0 for worker in range(workers)]
    assert sum(parts) == operations
    assert max(parts) - min(parts) <= 1


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
        ({"think_time": -0.1}, "--think-time must be 0 seconds or more"),
        ({"think_time": float("nan")}, "--think-time"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**options)  # type: ignore[arg-type]


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
