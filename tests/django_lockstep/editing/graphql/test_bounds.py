"""What a document costs is bounded before any rule walks it."""

import pytest

from tests.django_lockstep.editing.graphql.asking import Asker

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]


def doubling(number: int, *, leaf: str = "__typename") -> str:
    """Return a query whose fragments each spread the next one twice."""
    fragments = [f"fragment F{i} on Query {{ ...F{i + 1} ...F{i + 1} }}" for i in range(number)]
    return " ".join(["query { ...F0 }", *fragments, f"fragment F{number} on Query {{ {leaf} }}"])


@pytest.mark.parametrize("leaf", ["__typename", "tables { table }", "__schema { types { name } }"])
@pytest.mark.parametrize("number", [10, 90])
def test_fragments_that_double(editor: Asker, number: int, leaf: str) -> None:
    answer = editor.post(doubling(number, leaf=leaf)).json()  # 2**90 paths would never end
    assert answer["data"] is None
    (error,) = answer["errors"]
    assert error["message"] == "The document has more than 1000 selections when its fragments are expanded"
    assert error["extensions"]["code"] == "BAD_REQUEST"


@pytest.mark.parametrize(("number", "reason"), [(4, "within itself"), (18, "more than 1000 selections")])
def test_fragments_that_spread_each_other(editor: Asker, number: int, reason: str) -> None:
    spreads = " ".join(f"...F{i}" for i in range(number))
    document = "query { ...F0 } " + " ".join(f"fragment F{i} on Query {{ {spreads} }}" for i in range(number))
    answer = editor.post(document).json()
    assert answer["data"] is None
    assert reason in answer["errors"][0]["message"]


@pytest.mark.parametrize("number", [100, 200, 330])
def test_braces_that_are_nested_deeply(editor: Asker, number: int) -> None:
    answer = editor.post("{ tables " * number + "}" * number).json()
    assert (answer["data"], answer["errors"][0]["extensions"]["code"]) == (None, "BAD_REQUEST")


def test_what_is_in_fragments_counts(editor: Asker) -> None:
    aliases = " ".join(f"a{number}: tables {{ table }}" for number in range(6))
    twice = f"{{ ...A b: checked_out {{ ... on EditResult {{ ...R }} }} ...A }} fragment A on Query {{ {aliases} }}"
    answer = editor.post(f"{twice} fragment R on EditResult {{ table }}").json()
    assert answer["errors"][0]["message"].startswith("The document has more than 10 aliases")
    deep = "{ ...A } fragment A on Query { tables { must_end { ...H } } }"
    deep += " fragment H on Hold { holds { table_name { a { b } } } }"
    assert editor.post(deep).json()["errors"][0]["message"].startswith("The document has more than 4 levels")
