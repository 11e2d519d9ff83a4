"""Programs that use the embedded server, for the tests to run, to watch and to kill.

``python -m tests.bank.programs NAME PGDATA``; what each prints is one line of JSON per answer.
"""

import json
import multiprocessing
import os
import sys

import django
from django.conf import settings
from django.db import OperationalError, connection


def configure(pgdata: str, **database: object) -> None:
    """Set Django up with the embedded server and nothing else; ``database`` is what else its settings say."""
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "bank.embedded",
                "NAME": "bank",
                "PGDATA": pgdata,
                "USER": os.environ.get("EMBEDDED_ROLE", ""),
                **database,
            }
        },
        USE_TZ=True,
    )
    django.setup()


def ask(statement: str) -> str:
    """Return the first value of a statement's answer, as text; the connection stays open."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return str(cursor.fetchone()[0]) if cursor.description else ""


def tell(answer: object) -> None:
    """Give the tests an answer."""
    print(json.dumps(answer), flush=True)  # noqa: T201


def user(pgdata: str) -> None:
    """Answer every statement of the standard input until it ends."""
    configure(pgdata)
    for line in sys.stdin:
        try:
            tell({"value": ask(line)})
        except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
            connection.close()
            tell({"error": type(error).__name__, "message": str(error)})
    connection.close()


def spawner(pgdata: str) -> None:
    """Have a spawned child use the server, and outlive it without using it."""
    child = multiprocessing.get_context("spawn").Process(target=_spawned, args=(pgdata,))
    child.start()
    child.join()
    tell({"value": str(child.exitcode)})
    sys.stdin.read()


def _spawned(pgdata: str) -> None:
    configure(pgdata)
    tell({"value": ask("SELECT pg_postmaster_start_time()")})
    connection.close()


def forker_waits(pgdata: str) -> None:
    """Use the server, fork a child that ends in the ordinary way without using it, and use the server again."""
    configure(pgdata)
    tell({"value": ask("SELECT pg_postmaster_start_time()")})
    connection.close()
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    user_of_the_rest()


def forker_ends(pgdata: str) -> None:
    """Use the server, fork a child that uses it too, and end before it."""
    configure(pgdata)
    tell({"value": ask("SELECT pg_postmaster_start_time()")})
    connection.close()
    joined, join = os.pipe()
    if os.fork() == 0:
        ask("SELECT 1")
        os.write(join, b"!")
        user_of_the_rest()
        return
    os.read(joined, 1)


def user_of_the_rest() -> None:
    """Answer the statements of the standard input in a process that is configured already."""
    for line in sys.stdin:
        tell({"value": ask(line)})
    connection.close()


def missing_test_database(pgdata: str) -> None:
    """Connect to a test database that does not exist."""
    configure(pgdata)
    settings.DATABASES["default"]["NAME"] = "test_bank"
    try:
        ask("SELECT 1")
    except OperationalError as error:
        tell({"value": str(error)})


def shell(pgdata: str) -> None:
    """Run ``manage.py dbshell`` with one statement."""
    from django.core.management import call_command

    configure(pgdata)
    call_command("dbshell", "--", "--no-psqlrc", "--tuples-only", "--command", "SELECT current_database()")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
