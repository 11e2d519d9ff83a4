"""The curl session of the documentation, run word for word."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.support.factories import AccountFactory, UserFactory

PAGE = Path(__file__).resolve().parents[3] / "docs" / "use" / "http.md"


def session() -> str:
    """Return the block of the page that talks to the bank."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "$BANK" in block]
    return str(block)


def account() -> str:
    """Return the program by which the page makes the account, which prints its key."""
    (program,) = re.findall(r'shell -v 0 -c "\n(.*?)"\)', PAGE.read_text("utf-8"), re.DOTALL)
    return str(program)


@pytest.mark.django_db(transaction=True)
def test_the_session_goes_as_it_stands_there(live_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    UserFactory.create(username="ada", is_staff=True, is_superuser=True)
    AccountFactory.create()
    call_command("shell", "-v", "0", "-c", account())
    key = capsys.readouterr().out.strip()
    call_command("api_token", "create", "ada")
    names = {"BANK": f"{live_server.url}/api", "TOKEN": capsys.readouterr().out.strip(), "ID": key}
    commands = [line.removeprefix("$ ") for line in session().splitlines() if line.startswith("$ ")]
    # What is typed is echoed before its answer, as a terminal shows it; an answer ends its line.
    script = "\n".join(
        f"cat <<'TYPED'\n$ {line}\nTYPED\n{line} | sed -e '$a\\'"
        if "()" not in line
        else f"cat <<'TYPED'\n$ {line}\nTYPED\n{line}"
        for line in commands
    )
    shown = subprocess.run(
        ["bash", "-c", script], env={**os.environ, **names}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == session().replace('"id": "1"', f'"id": "{key}"').replace('ETag: "1.1"', f'ETag: "{key}.1"')


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["nobody", "gone"])
def test_there_is_no_token_for_a_user_who_cannot_log_in(name: str) -> None:
    UserFactory.create(username="gone", is_active=False)
    with pytest.raises(CommandError, match=name):
        call_command("api_token", "create", name)
