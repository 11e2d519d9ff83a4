"""The environment of the DynamoDB server is made once, and what prevents it is told."""

import sys
from pathlib import Path

import pytest

from tests.support.dynamodb import ServerMissingError, server_python


def test_what_prevents_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(ServerMissingError, match="no python"):
        server_python("server==1", tmp_path)


def test_what_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    folder = tmp_path / f"server==1-python{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir()
    (folder / "installed").touch()
    assert server_python("server==1", tmp_path) == folder / "bin" / "python"
