"""What prevents the environment of the DynamoDB server is told."""

import sys
from pathlib import Path

import pytest

from tests.support.dynamodb import ServerMissingError, server_python


def test_what_prevents_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(ServerMissingError, match="no python"):
        server_python("server==1", tmp_path)
