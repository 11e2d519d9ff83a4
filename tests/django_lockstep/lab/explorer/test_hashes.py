"""The server's hash of a text, worked out without the server."""

import pytest
from django.db import connection
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_lockstep.lab.explorer.effects.key_values import hashed_text

texts = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=40)


@pytest.mark.django_db
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(text="", seed=0)
@example(text="a" * 11, seed=-1)
@example(text="a" * 24, seed=2**63 - 1)
@given(
    text=st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=40),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_it_is_the_number_that_the_server_returns(text: str, seed: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT hashtextextended(%s, 0), hashtextextended(%s, %s)", [text, text, seed])
        assert cursor.fetchone() == (hashed_text(text, 0), hashed_text(text, seed))
