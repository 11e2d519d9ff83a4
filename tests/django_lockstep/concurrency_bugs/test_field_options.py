"""Options of the version's field are obeyed, or refused; never dropped."""

from typing import Any

import pytest


def test_known_options_are_obeyed(model: Any) -> None:
    kind = type(model._meta.get_field("version"))
    field = kind(editable=False, db_index=True)
    assert (field.editable, field.db_index) == (False, True)
    assert field.deconstruct()[3].items() >= {"editable": False, "db_index": True}.items()


def test_others_are_refused(model: Any) -> None:
    with pytest.raises(TypeError, match="unique"):
        type(model._meta.get_field("version"))(unique=True)
