"""The SVG drawing of a run."""

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from django.utils import translation
from rich.cells import cell_len

from django_lockstep.lab.explorer import Run, Step, replay, svg
from django_lockstep.lab.explorer.render.drawing.layout import COLUMN, Layout
from django_lockstep.lab.explorer.render.summaries import truncate, wrap
from tests.django_lockstep.lab.explorer import stories

STRANGE = [
    "SELECT '<b>&amp;</b>' AS \"x\" WHERE a < 3 && b > 'it''s'",
    "SELECT '\x00\x07\x1b[31m\ud800\uffff'",
    "SELECT '" + "very long " * 300 + "'",
    "SELECT '検索 поиск αναζήτηση بحث 🐘🐘'",
    "]]> --> <!-- <?xml </title></svg><script>alert(1)</script>",
    "\u202eTCELES",
    "",
]


def drawn_run(*, actors: int = 2, steps: int = 4, sql: str = "UPDATE shop_seat SET price = 1 WHERE id = 1") -> Run:
    """Everybody moves in turn; each statement begins a wait that the next actor's move ends."""
    names = [f"actor {sql[:20]} {number}" for number in range(actors)]
    drawn_steps = tuple(
        Step(
            actor=names[number % actors],
            begun=number,
            ended=min(number + (actors > 1), steps - 1),
            sql=sql,
            params=sql,
            waited_for=tuple(names[:1]) * (actors > 1),
            waited_on=sql,
            woken_by=names[(number + 1) % actors],
            transaction=0,
            sqlstate="40P01" if number % 3 == 0 else None,
        )
        for number in range(steps)
    )
    schedule = "".join("ABCDE"[number % actors] for number in range(steps))
    return Run(
        schedule=schedule,
        preemptions=0,
        steps=drawn_steps,
        errors={names[0]: sql},
        results={},
        state=sql,
        holds=False,
        reason=sql,
    )


def parsed(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314 - drawn by ourselves


def elements(drawn: str, tag: str) -> list[ET.Element]:
    return list(parsed(drawn).iter(f"{{http://www.w3.org/2000/svg}}{tag}"))


@pytest.mark.parametrize("sql", STRANGE)
def test_it_is_well_formed_whatever_is_in_the_statements(sql: str) -> None:
    drawn = svg(drawn_run(sql=sql))

    assert drawn.encode("utf-8")
    assert not elements(drawn, "script")
    assert "\u202e" not in drawn


@pytest.mark.parametrize("actors", range(1, 6))
@pytest.mark.parametrize("steps", [3, 60])
@pytest.mark.parametrize("sql", STRANGE)
def test_no_text_leaves_its_lane_or_the_picture(actors: int, steps: int, sql: str) -> None:
    layout = Layout(drawn_run(actors=actors, steps=steps, sql=sql))

    for bar in layout.bars:
        for text, _ in [*bar.lines, *bar.tail_lines, (bar.waits, "")]:
            assert cell_len(text) * COLUMN <= layout.head(bar).width - 4 * 6
    assert all(cell_len(line) * COLUMN <= layout.width for line in layout.footer())


@pytest.mark.parametrize("actors", range(1, 6))
@pytest.mark.parametrize("steps", [3, 17, 60])
def test_lanes_and_rows_do_not_overlap(actors: int, steps: int) -> None:
    layout = Layout(drawn_run(actors=actors, steps=steps))
    lanes = [layout.lane(actor) for actor in layout.actors]

    assert all(right - left > layout.lane_width for left, right in pairwise(lanes))
    tops = [top for _, top in layout.rows]
    for bar in layout.bars:
        head = layout.head(bar)
        end = layout.tail(bar) if bar.waits else head
        assert end.bottom <= [*tops, layout.bottom][bar.step.ended + 1]
        assert all(line.y >= tops[bar.step.begun] for line in (head, end))


def test_a_run_without_a_statement_is_drawn_too() -> None:
    assert "Schedule : WRONG" in svg(drawn_run(steps=0))


def test_screen_readers_get_title_and_description() -> None:
    drawn = svg(drawn_run(), ident="first")
    root = parsed(drawn)
    summary = {element.get("id"): element.text or "" for tag in ("title", "desc") for element in elements(drawn, tag)}

    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "first-title first-desc"
    assert summary["first-title"] == "Schedule ABAB: WRONG"
    assert summary["first-desc"].startswith("Step 1, actor")


def test_it_is_in_english_but_for_a_page_in_the_language_of_its_visitor() -> None:
    with translation.override("ja"):
        drawn, shown, arabic = svg(drawn_run()), svg(drawn_run(), language=None), svg(drawn_run(), language="ar")

    assert drawn == svg(drawn_run())
    assert len({drawn, shown, arabic}) == 3


def test_ids_of_two_drawings_in_a_page_differ() -> None:
    ids = [element.get("id") for ident in ("one", "two") for element in parsed(svg(drawn_run(), ident=ident)).iter()]
    named = [identity for identity in ids if identity]

    assert len(named) == len(set(named)) > 0


def test_nothing_is_loaded_and_nothing_runs() -> None:
    drawn = svg(drawn_run()).replace('xmlns="http://www.w3.org/2000/svg"', "")

    assert not [word for word in ("http:", "https:", "@import", "href", "script", "onload", "style=") if word in drawn]


def test_the_style_knows_dark_screens_and_is_left_out_for_pages_that_link_it() -> None:
    assert "prefers-color-scheme: dark" in (elements(svg(drawn_run()), "style")[0].text or "")
    assert not elements(svg(drawn_run(), styled=False), "style")


def test_a_cut_statement_is_whole_in_its_tooltip() -> None:
    sql = "SELECT '" + "very long " * 50 + "'"
    assert any(sql in (title.text or "") for title in elements(svg(drawn_run(sql=sql)), "title"))


@pytest.mark.django_db(transaction=True)
def test_a_real_run_shows_waits_arrows_and_the_step_that_breaks() -> None:
    run = replay(stories.raising(stories.naive), "AABBAB")
    drawn = svg(run)
    kinds = " ".join(element.get("class", "") for element in parsed(drawn).iter())
    texts = [element.text for element in elements(drawn, "text")]

    assert {"wait", "arrow", "wake", "breaking", "transaction"} <= set(kinds.split())
    assert "▲ here it breaks: lost update" in texts
    assert "woken by A" in texts


@pytest.mark.parametrize(
    ("text", "columns", "expected"), [("abcdef", 6, "abcdef"), ("abcdef", 4, "abc…"), ("検索機", 4, "検…")]
)
def test_text_is_cut_with_an_ellipsis(text: str, columns: int, expected: str) -> None:
    assert truncate(text, columns) == expected


def test_text_is_broken_at_spaces_and_cut_at_the_end() -> None:
    assert wrap("one two three four five", 9, most=2) == ["one two", "three fo…"]


def test_a_narrow_lane_says_the_same_in_more_lines_and_numbers_its_statements_for_the_page() -> None:
    run = drawn_run()
    narrow, usual = Layout(run, lane_width=176), Layout(run)
    assert narrow.width < 460 < usual.width
    assert len(narrow.bars[0].lines) > len(usual.bars[0].lines)
    numbers = [group.get("data-step") for group in elements(svg(run, styled=False, lane_width=176), "g")]
    assert list(filter(None, numbers)) == ["1", "2", "3", "4"]
    assert "data-step" not in svg(run)
