"""Which trigger functions can only change or refuse the row at hand."""

import pytest

from django_lockstep.lab.explorer.effects.plpgsql import EVERY_COLUMN, Body, read_body

GUARD = 'BEGIN IF NEW *<> OLD THEN NEW."version" := OLD."version" + 1; END IF; RETURN NEW; END'


@pytest.mark.parametrize(
    ("source", "assigned"),
    [
        (GUARD, {"version"}),
        ("BEGIN RAISE EXCEPTION 'no UPDATE of %', TG_OP USING ERRCODE = 'restrict_violation'; END", set()),
        ("BEGIN NEW.Slug = lower(NEW.title); /* update it */ RETURN NEW; -- select\nEND", {"slug"}),
        ('BEGIN IF NEW.v IS DISTINCT FROM OLD.v THEN NEW."at" := now(); END IF; RETURN NULL; END', {"at"}),
        ("DECLARE r made_a; BEGIN r := NEW; r.u := 1; RETURN r; END", {EVERY_COLUMN}),
        ("BEGIN NEW := OLD; RETURN NEW; END", {EVERY_COLUMN}),
    ],
)
def test_a_body_that_only_computes_says_which_columns_it_sets(source: str, assigned: set[str]) -> None:
    assert read_body(source, harmful={"audit"}) == Body(assigned=frozenset(assigned))


@pytest.mark.parametrize(
    ("source", "does"),
    [
        ("BEGIN NEW.no := audit(NEW.v); RETURN NEW; END", "calls audit()"),
        ('BEGIN NEW.no := public."audit" (NEW.v); RETURN NEW; END', "calls audit()"),
        ("BEGIN UPDATE a SET v = 1; RETURN NEW; END", "runs SQL of its own (UPDATE)"),
        ("BEGIN NEW.v := max(v) FROM a; RETURN NEW; END", "runs SQL of its own (FROM)"),
        ("BEGIN IF EXISTS (TABLE a) THEN RETURN NULL; END IF; RETURN NEW; END", "runs SQL of its own (TABLE)"),
        ("BEGIN NOTIFY a; RETURN NEW; END", "runs SQL of its own (NOTIFY)"),
        ("BEGIN NEW.v := E'\\'' ; RETURN NEW; END", "holds strings that are not understood"),
    ],
)
def test_a_body_that_does_more_says_what(source: str, does: str) -> None:
    assert read_body(source, harmful={"audit"}).does == does
