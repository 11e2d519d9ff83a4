"""Both engines, for what has to hold of either."""

from typing import Any

import pytest

from accounts.engine import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, settings: Any) -> str:
    """Run every change of the test by this engine."""
    settings.ACCOUNTS_ENGINE = request.param
    return str(request.param)
