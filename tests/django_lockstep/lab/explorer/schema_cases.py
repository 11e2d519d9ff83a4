"""Schemas in which the database does something beyond the statements, each with two programs that show it."""

from dataclasses import dataclass

from tests.django_lockstep.lab.explorer.schemas import trigger


@dataclass(frozen=True, kw_only=True)
class Case:
    """A schema and two programs whose order matters."""

    schema: tuple[str, ...]
    tables: tuple[str, ...] = ("made_a",)
    rows: tuple[str, ...] = ()
    first: tuple[str, ...]
    second: tuple[str, ...]
    told: str = ""
    """What the result says of the schema."""


COUNTER = (
    "CREATE TABLE made_counter (id int PRIMARY KEY, n int)",
    "CREATE FUNCTION made_next() RETURNS int LANGUAGE sql AS 'UPDATE made_counter SET n = n + 1 RETURNING n'",
    "CREATE FUNCTION made_seen() RETURNS int LANGUAGE sql AS 'SELECT n FROM made_counter'",
)
TWO = ("INSERT INTO made_a VALUES (1, 0), (2, 0)", "INSERT INTO made_counter VALUES (1, 1)")


def counting(*schema: str, first: str, second: str = "UPDATE made_counter SET n = 10") -> Case:
    """A table that calls a function which counts."""
    return Case(
        schema=(*COUNTER, *schema), tables=("made_a", "made_counter"), rows=TWO, first=(first,), second=(second,)
    )


PLAIN = "CREATE TABLE made_a (id int PRIMARY KEY, v int)"
FAILS = (
    "CREATE FUNCTION made_fails() RETURNS int LANGUAGE plpgsql AS "
    "$$ BEGIN IF made_seen() = 1 THEN RAISE 'no'; END IF; RETURN 1; END $$"
)
CHILD = "CREATE TABLE made_b (id int PRIMARY KEY, a int REFERENCES made_a)"
CASES = {
    "exclusion, two rows each": Case(
        schema=("CREATE TABLE made_a (id int PRIMARY KEY, slot int4range, EXCLUDE USING gist (slot WITH &&))",),
        rows=("INSERT INTO made_a VALUES (1, '[0,1)'), (2, '[2,3)'), (3, '[4,5)'), (4, '[6,7)')",),
        first=("UPDATE made_a SET slot = '[10,15)' WHERE id = 1", "UPDATE made_a SET slot = '[20,25)' WHERE id = 2"),
        second=("UPDATE made_a SET slot = '[22,27)' WHERE id = 3", "UPDATE made_a SET slot = '[12,17)' WHERE id = 4"),
    ),
    "trigger that numbers": counting(
        PLAIN, *trigger("BEGIN NEW.v := made_next(); RETURN NEW; END"), first="UPDATE made_a SET v = 0 WHERE id = 1"
    ),
    "trigger with an expression that is a query": counting(
        PLAIN,
        *trigger("BEGIN NEW.v := n FROM made_counter; RETURN NEW; END"),
        first="UPDATE made_a SET v = 0 WHERE id = 1",
    ),
    "trigger on what CASCADE deletes, which catches its error": counting(
        PLAIN.replace("v int", "v int REFERENCES made_b ON DELETE CASCADE"),
        FAILS,
        *trigger(
            "BEGIN PERFORM made_fails(); RETURN OLD; EXCEPTION WHEN others THEN RETURN NULL; END", "BEFORE DELETE"
        ),
        first="DELETE FROM made_b WHERE id = 0",
    ),
    "default": counting(
        "CREATE TABLE made_a (id int PRIMARY KEY, v int DEFAULT made_next())",
        first="INSERT INTO made_a (id) VALUES (3)",
    ),
    "default of a domain": counting(
        "CREATE DOMAIN made_number AS int DEFAULT made_next()",
        "CREATE TABLE made_a (id int PRIMARY KEY, v made_number)",
        first="INSERT INTO made_a (id) VALUES (3)",
    ),
    "check": counting(
        "CREATE TABLE made_a (id int PRIMARY KEY, v int, CONSTRAINT few CHECK (v < made_seen()))",
        first="UPDATE made_a SET v = 5 WHERE id = 1",
    ),
    "when": counting(
        PLAIN,
        "CREATE FUNCTION made_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.v := 99; RETURN NEW; END $$",
        "CREATE TRIGGER made_t BEFORE UPDATE ON made_a FOR EACH ROW WHEN (made_seen() > 5) "
        "EXECUTE FUNCTION made_trigger()",
        first="UPDATE made_a SET v = 5 WHERE id = 1",
    ),
    "index": counting(
        PLAIN,
        "CREATE FUNCTION made_lied(v int) RETURNS int LANGUAGE sql IMMUTABLE "
        "AS 'SELECT v + n FROM public.made_counter'",
        "CREATE UNIQUE INDEX made_i ON made_a (made_lied(v))",
        first="UPDATE made_a SET v = -9 WHERE id = 1",
        second="INSERT INTO made_a VALUES (3, -9)",
    ),
    "trigger that sets a unique column": Case(
        schema=(
            "CREATE TABLE made_a (id int PRIMARY KEY, v int, u int UNIQUE)",
            *trigger("BEGIN NEW.u := NEW.v % 10; RETURN NEW; END"),
        ),
        rows=("INSERT INTO made_a VALUES (1, 1), (2, 2)",),
        first=("UPDATE made_a SET v = 15 WHERE id = 1",),
        second=("UPDATE made_a SET v = 25 WHERE id = 2",),
    ),
    "generated unique column": Case(
        schema=("CREATE TABLE made_a (id int PRIMARY KEY, v int, u int UNIQUE GENERATED ALWAYS AS (v % 10) STORED)",),
        rows=("INSERT INTO made_a VALUES (1, 1), (2, 2)",),
        first=("UPDATE made_a SET v = 15 WHERE id = 1",),
        second=("UPDATE made_a SET v = 25 WHERE id = 2",),
    ),
    "deferred unique column": Case(
        schema=("CREATE TABLE made_a (id int PRIMARY KEY, v int UNIQUE DEFERRABLE INITIALLY DEFERRED)",),
        first=("INSERT INTO made_a VALUES (1, 7)",),
        second=("INSERT INTO made_a VALUES (2, 7)",),
    ),
    "duplicate of a row that is being changed": Case(
        schema=(PLAIN,),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)",),
        first=("UPDATE made_a SET v = 1 WHERE id = 1", "UPDATE made_a SET v = 1 WHERE id = 2"),
        second=("UPDATE made_a SET v = 2 WHERE id = 2", "INSERT INTO made_a VALUES (1, 9)"),
    ),
    "renamed key": Case(
        schema=(PLAIN,),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)",),
        first=("UPDATE made_a SET id = 5 WHERE id = 1",),
        second=("UPDATE made_a SET v = 7 WHERE id = 5",),
    ),
    "ON UPDATE CASCADE": Case(
        schema=(PLAIN, "CREATE TABLE made_b (id int PRIMARY KEY, a int REFERENCES made_a ON UPDATE CASCADE)"),
        tables=("made_a", "made_b"),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)", "INSERT INTO made_b VALUES (1, 1)"),
        first=("UPDATE made_a SET id = 5 WHERE id = 1",),
        second=("SELECT count(*) FROM made_b WHERE a = 5",),
    ),
    "foreign key": Case(
        schema=(PLAIN, CHILD),
        tables=("made_a", "made_b"),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)", "INSERT INTO made_b VALUES (5, 1)"),
        first=("UPDATE made_b SET a = 2 WHERE id = 5",),
        second=("DELETE FROM made_a WHERE id = 2",),
    ),
    "foreign key of a generated column": Case(
        schema=(PLAIN, CHILD.replace("a int", "v int, a int GENERATED ALWAYS AS (v) STORED")),
        tables=("made_a", "made_b"),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)", "INSERT INTO made_b VALUES (5, 1)"),
        first=("UPDATE made_b SET v = 2 WHERE id = 5",),
        second=("DELETE FROM made_a WHERE id = 2",),
    ),
    "sequence of another table": Case(
        schema=(
            "CREATE TABLE made_a (id int PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY, v int)",
            "CREATE TABLE made_b (id int PRIMARY KEY DEFAULT nextval('made_a_id_seq'), v int)",
        ),
        tables=("made_a", "made_b"),
        first=("INSERT INTO made_a (v) VALUES (1)",),
        second=("INSERT INTO made_b (v) VALUES (1)",),
    ),
    "sequence named at run time": Case(
        schema=(
            "CREATE SEQUENCE made_s",
            "CREATE TABLE made_a (id int PRIMARY KEY DEFAULT nextval('made_s'::text), v int)",
            "CREATE TABLE made_b (id int PRIMARY KEY DEFAULT nextval('made_s'), v int)",
        ),
        tables=("made_a", "made_b"),
        first=("INSERT INTO made_a (v) VALUES (1)",),
        second=("INSERT INTO made_b (v) VALUES (1)",),
    ),
    "cascade of a table to itself": Case(
        schema=("CREATE TABLE made_a (id int PRIMARY KEY, parent int REFERENCES made_a ON DELETE CASCADE)",),
        rows=("INSERT INTO made_a VALUES (1, NULL), (2, 1)",),
        first=("DELETE FROM made_a WHERE id = 1",),
        second=("SELECT parent FROM made_a WHERE id = 2",),
    ),
    "trigger that skips a row": Case(
        schema=(PLAIN, *trigger("BEGIN IF NEW.v < 0 THEN RETURN NULL; END IF; RETURN NEW; END", "BEFORE UPDATE")),
        rows=("INSERT INTO made_a VALUES (1, 10)",),
        first=("UPDATE made_a SET v = v - 50 WHERE id = 1", "SELECT 1"),
        second=("SELECT v FROM made_a WHERE id = 1 FOR UPDATE NOWAIT",),
    ),
    "UPDATE of no row whose subquery locks one": Case(
        schema=(PLAIN,),
        rows=("INSERT INTO made_a VALUES (1, 10)",),
        first=(
            "UPDATE made_a SET v = 1 WHERE v < 0 AND id IN (SELECT id FROM made_a WHERE id = 1 FOR NO KEY UPDATE)",
            "SELECT 1",
        ),
        second=("SELECT v FROM made_a WHERE id = 1 FOR UPDATE NOWAIT",),
    ),
    "trigger that changes a foreign key": Case(
        schema=(
            "CREATE TABLE made_a (id int PRIMARY KEY, v int, b int REFERENCES made_b)",
            *trigger('BEGIN "new".b := NEW.v; RETURN NEW; END'),
        ),
        tables=("made_a", "made_b"),
        rows=("INSERT INTO made_b VALUES (7)", "INSERT INTO made_a VALUES (1, 0)"),
        first=("UPDATE made_a SET v = 7 WHERE id = 1",),
        second=("DELETE FROM made_b WHERE id = 7",),
    ),
    "trigger that inserts one more": Case(
        schema=(
            PLAIN,
            *trigger(
                "BEGIN IF NEW.id < 100 THEN INSERT INTO made_a VALUES (NEW.id + 100, 0); END IF; RETURN NULL; END",
                "AFTER INSERT",
            ),
        ),
        first=("INSERT INTO made_a VALUES (1, 0)",),
        second=("INSERT INTO made_a VALUES (101, 9)",),
    ),
    "trigger whose row refers to another one": Case(
        schema=(
            PLAIN,
            "CREATE TABLE made_c (id int PRIMARY KEY, b int REFERENCES made_b DEFERRABLE INITIALLY DEFERRED)",
            *trigger("BEGIN INSERT INTO made_c VALUES (1, NEW.v); RETURN NULL; END", "AFTER UPDATE"),
        ),
        tables=("made_a", "made_b", "made_c"),
        rows=("INSERT INTO made_b VALUES (7)", "INSERT INTO made_a VALUES (1, 0)"),
        first=("UPDATE made_a SET v = 7 WHERE id = 1", "SELECT 1"),
        second=("DELETE FROM made_b WHERE id = 7",),
    ),
    "trigger that reads what a row might refer to": Case(
        schema=(
            "CREATE TABLE made_c (id int PRIMARY KEY, n int)",
            "CREATE TABLE made_a (id int PRIMARY KEY, v int, c int REFERENCES made_c)",
            *trigger("BEGIN NEW.v := (SELECT n FROM made_c WHERE id = 1); RETURN NEW; END", "BEFORE INSERT"),
        ),
        tables=("made_a", "made_c"),
        rows=("INSERT INTO made_c VALUES (1, 1)",),
        first=("INSERT INTO made_a VALUES (1, 0, NULL)",),
        second=("UPDATE made_c SET n = 2 WHERE id = 1",),
    ),
    "number in a constraint": Case(
        schema=("CREATE TABLE made_a (id serial PRIMARY KEY, v int, CHECK (v > id))",),
        first=("INSERT INTO made_a (v) VALUES (2)",),
        second=("INSERT INTO made_a (v) VALUES (9)",),
    ),
    "number in a generated column": Case(
        schema=("CREATE TABLE made_a (id serial PRIMARY KEY, v int, w int GENERATED ALWAYS AS (id * 10 + v) STORED)",),
        first=("INSERT INTO made_a (v) VALUES (1)",),
        second=("INSERT INTO made_a (v) VALUES (2)",),
    ),
    "number in a text": Case(
        schema=(
            "CREATE SEQUENCE made_s",
            "CREATE TABLE made_a (id int PRIMARY KEY, v text DEFAULT 'A-' || nextval('made_s'))",
        ),
        first=("INSERT INTO made_a (id) VALUES (1)",),
        second=("INSERT INTO made_a (id) VALUES (2)",),
    ),
    "function of a row": counting(
        PLAIN,
        "CREATE FUNCTION made_total(made_a) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT sum(n) FROM made_counter'",
        first="SELECT a.made_total FROM made_a a WHERE id = 1",
    ),
    "domain of a cast": counting(
        PLAIN, "CREATE DOMAIN made_number AS int CHECK (VALUE < made_seen())", first="SELECT 5::made_number"
    ),
    "function that locks another row": Case(
        schema=(
            PLAIN,
            "CREATE FUNCTION made_locks() RETURNS int LANGUAGE sql AS 'SELECT v FROM made_a WHERE id = 2 FOR UPDATE'",
        ),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)",),
        first=("SELECT v FROM made_a WHERE id = 1 FOR UPDATE", "SELECT made_locks()", "SELECT 1"),
        second=("SELECT v FROM made_a WHERE id = 2 FOR UPDATE NOWAIT",),
    ),
    "function that takes an advisory lock": Case(
        schema=(
            PLAIN,
            (
                "CREATE FUNCTION made_locks() RETURNS int LANGUAGE plpgsql AS "
                "'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN 0; END'"
            ),
        ),
        first=("SELECT made_locks()", "SELECT 1"),
        second=("SELECT pg_try_advisory_xact_lock(7)::int",),
    ),
    "view": Case(
        schema=(PLAIN, "CREATE VIEW made_v AS SELECT sum(v) AS v FROM made_a"),
        rows=("INSERT INTO made_a VALUES (1, 0)",),
        first=("SELECT v FROM made_v",),
        second=("UPDATE made_a SET v = 2 WHERE id = 1",),
    ),
    "row that moves to another partition": Case(
        schema=(
            "CREATE TABLE made_p (id int, v int) PARTITION BY LIST (v)",
            "CREATE TABLE made_a PARTITION OF made_p FOR VALUES IN (1)",
            "CREATE TABLE made_c PARTITION OF made_p FOR VALUES IN (2)",
        ),
        tables=("made_a", "made_c"),
        rows=("INSERT INTO made_p VALUES (1, 1)",),
        first=("UPDATE made_p SET v = 2 WHERE id = 1",),
        second=("SELECT count(*) FROM made_c",),
    ),
    "view that calls a function": counting(
        PLAIN,
        "CREATE FUNCTION made_reads() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT sum(n) FROM made_counter'",
        "CREATE VIEW made_v AS SELECT v + made_reads() AS v FROM made_a",
        first="SELECT v FROM made_v",
    ),
    "MERGE": Case(
        schema=(PLAIN,),
        rows=("INSERT INTO made_a VALUES (1, 0)",),
        first=(
            (
                "MERGE INTO made_a USING (VALUES (1), (2)) s (id) ON made_a.id = s.id "
                "WHEN MATCHED THEN UPDATE SET v = v + 1 WHEN NOT MATCHED THEN INSERT VALUES (s.id, 9)"
            ),
        ),
        second=("UPDATE made_a SET v = 5 WHERE id = 1",),
    ),
    "statement that failed in a savepoint": counting(
        PLAIN,
        FAILS,
        "CREATE FUNCTION made_caught() RETURNS int LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN made_fails(); EXCEPTION WHEN others THEN RETURN 9; END $$",
        first="SELECT made_caught()",
    ),
    "statement that failed": counting(PLAIN, FAILS, first="SELECT made_fails()"),
    "trigger that notifies": Case(
        schema=(PLAIN, *trigger("BEGIN NOTIFY made; RETURN NEW; END", "BEFORE UPDATE")),
        rows=("INSERT INTO made_a VALUES (1, 0)",),
        first=("UPDATE made_a SET v = 1 WHERE id = 1",),
        second=("UPDATE made_a SET v = 2 WHERE id = 1",),
        told="table made_a: its trigger made_t calls made_trigger()",
    ),
    "rows by the time of their change": Case(
        schema=("CREATE TABLE made_a (id int PRIMARY KEY, v timestamptz)",),
        tables=(),
        rows=("INSERT INTO made_a VALUES (1, '2020-01-01'), (2, '2020-01-01')",),
        first=("UPDATE made_a SET v = clock_timestamp() WHERE id = 1", "SELECT id FROM made_a ORDER BY v DESC LIMIT 1"),
        second=("UPDATE made_a SET v = clock_timestamp() WHERE id = 2",),
    ),
    "a waiter that holds a row under its new key": Case(
        schema=(PLAIN,),
        rows=("INSERT INTO made_a VALUES (1, 0), (2, 0)",),
        first=("UPDATE made_a SET id = 5 WHERE id = 1", "UPDATE made_a SET v = 3 WHERE id = 2"),
        second=("UPDATE made_a SET v = 1 WHERE id = 1", "UPDATE made_a SET v = 4 WHERE id = 5"),
    ),
}
