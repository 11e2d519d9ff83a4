"""The code of a race as its page shows it: what actors run, what they call, and the values that tell them apart."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from django_lockstep.lab.explorer import Scenario
from django_lockstep.lab.pages.code import FunctionCode, RaceCode, race_code, source_lines
from django_lockstep.lab.races import Race


def take(amount: int) -> int:
    """Take it; this is not shown."""
    if amount > 0:
        return -amount
    return 0


def shared_step(amount: int) -> int:
    return take(amount)


def withdrawal(amount: int) -> Callable[[], int]:
    def withdraw() -> int:
        return shared_step(amount)

    return withdraw


async def withdraw_later() -> int:
    return 1


def code_of(*actors: Callable[..., Any], code: tuple[Callable[..., Any], ...] = (), invariant: Any = None) -> RaceCode:
    return race_code(Race(name="race", text="", scenario=Scenario(actors=actors, invariant=invariant), code=code))


def text(function: FunctionCode) -> str:
    return "\n".join(f"{line.indentation}{re.sub('<[^>]+>', '', line.html)}" for line in function.lines)


def names(functions: tuple[FunctionCode, ...]) -> list[str]:
    return [re.findall(r"def (\w+)", text(function))[0] for function in functions]


def test_actors_that_run_the_same_stand_together() -> None:
    ((actors, functions),) = code_of(withdraw_later, withdraw_later).actors.items()
    assert (actors, names(functions)) == (("A", "B"), ["withdraw_later"])


def test_a_closure_is_shown_with_its_values_and_what_all_call_apart() -> None:
    code = code_of(withdrawal(30), withdrawal(20))
    assert [(actors, names(functions), functions[0].values) for actors, functions in code.actors.items()] == [
        (("A",), ["withdraw"], (("amount", "30"),)),
        (("B",), ["withdraw"], (("amount", "20"),)),
    ]
    assert names(code.shared) == ["shared_step", "take"]


def test_a_docstring_is_left_out_and_each_line_has_its_place() -> None:
    lines = source_lines(take)
    assert "this is not shown" not in "".join(line.html for line in lines)
    assert [len(line.indentation) for line in lines] == [0, 1, 2, 1]
    first = take.__code__.co_firstlineno
    here = "tests/django_lockstep/lab/pages/test_code.py"
    assert [line.place for line in lines] == [f"{here}:{first + number}" for number in (0, 2, 3, 4)]


def test_of_two_lambdas_in_one_line_each_is_shown_alone() -> None:
    code = code_of(*[lambda: take(30), lambda: take(20)])
    assert [text(function) for function, *_ in code.actors.values()] == ["lambda: take(30)", "lambda: take(20)"]


def test_a_partial_is_what_it_calls_with_its_arguments() -> None:
    code = code_of(partial(take, 30), partial(take, amount=20))
    assert [(names(functions), functions[0].values) for functions in code.actors.values()] == [
        (["take"], (("amount", "30"),)),
        (["take"], (("amount", "20"),)),
    ]


def test_a_race_names_further_functions_and_what_must_hold() -> None:
    code = code_of(withdraw_later, code=(take,), invariant=lambda: take(1) == -1)
    assert names(code.shared) == ["take"]
    assert [text(function) for function in code.invariant] == ["lambda: take(1) == -1"]


def test_what_has_no_source_is_left_out() -> None:
    typed: dict[str, Any] = {}
    exec("def typed():\n    return 1\n", typed)  # noqa: S102
    assert code_of(typed["typed"]).actors == {("A",): ()}


def test_code_is_escaped() -> None:
    assert "&lt;script&gt;" in source_lines(lambda: "<script>")[0].html
