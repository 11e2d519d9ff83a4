"""What the demo's settings do where the environment says nothing."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bank.secret_key import read_or_create_key
from tests.support.processes import run

SERVE = """
import bank.wsgi, django.urls
from django.conf import settings
from django.test import Client
def broken(request): raise ValueError("the page is broken")
settings.ROOT_URLCONF = __name__
urlpatterns = [django.urls.path("", broken)]
client = Client(raise_request_exception=False)
assert client.get("/", secure=True, headers={"host": "localhost"}).status_code == 500
"""


def test_all_processes_of_a_copy_have_one_key_that_only_their_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret_key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(read_or_create_key, [path] * 8))
    assert keys == {path.read_text()}
    assert len(path.read_text()) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


def test_a_key_that_cannot_be_kept_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert read_or_create_key(tmp_path / "file" / "secret_key") != read_or_create_key(tmp_path / "file" / "secret_key")
    assert "DJANGO_SECRET_KEY is not set" in caplog.text


@pytest.mark.parametrize("debug", ["0", "1"])
def test_an_error_of_a_page_leaves_its_traceback_on_stderr_once(debug: str) -> None:
    served = run("-c", SERVE, DJANGO_DEBUG=debug, DJANGO_SETTINGS_MODULE="bank.settings")
    assert served.returncode == 0, served.stderr
    assert served.stderr.count("ValueError: the page is broken") == 1
