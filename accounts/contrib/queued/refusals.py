"""Errors as plain data, for the queue to keep, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from accounts.amounts import PLACES
from accounts.contrib.queued.errors import ChangeFailed
from accounts.errors import AccountError, IdempotencyKeyReused, InsufficientFunds, InvalidAmount

__all__ = ["as_data", "as_error", "in_words"]

_MONEY = ("amount", "balance", "overdraft_limit", "recorded")
_KNOWN: dict[str, type[AccountError]] = {
    kind.__name__: kind for kind in (ChangeFailed, IdempotencyKeyReused, InsufficientFunds, InvalidAmount)
}
_GONE = "DoesNotExist"
_FACTS = (*_MONEY, "idempotency_key", "rule")
_CAUSES = ("cause", "sqlstate", "constraint")
_WORDS = {
    _GONE: _("an account is gone"),
    ChangeFailed.__name__: _("failed: %(message)s"),
    IdempotencyKeyReused.__name__: _("the key belongs to another change, of %(recorded)s"),
    InsufficientFunds.__name__: _("not covered by a balance of %(balance)s, overdraft limit %(overdraft_limit)s"),
    InvalidAmount.__name__: _("invalid: %(rule)s"),
}


def as_data(error: AccountError | None) -> dict[str, Any]:
    """Return the error as JSON has it; None stands for an account that is gone."""
    if error is None:
        return {"error": _GONE}
    facts = {name: str(value) for name, value in vars(error).items() if name in _FACTS}
    causes = {name: value for name, value in vars(error).items() if name in _CAUSES}
    return {"error": type(error).__name__, "message": error.args[0], **facts, **causes}


def as_error(model: type[Any], data: dict[str, Any]) -> Exception:
    """Return the error again."""
    name = str(data["error"])
    if name == _GONE:
        gone: Exception = model.DoesNotExist(f"{model._meta.label} has no row for the queued change any more")
        return gone
    facts: dict[str, Any] = {key: Decimal(value) if key in _MONEY else value for key, value in data.items()}
    del facts["error"]
    return _KNOWN.get(name, AccountError)(facts.pop("message"), **facts)


def in_words(data: dict[str, Any]) -> str:
    """Return for people to read what the error says."""
    words = _WORDS.get(str(data["error"]))
    if words is None:
        return str(data["message"])
    facts = {key: number_format(value, PLACES) if key in _MONEY else value for key, value in data.items()}
    return str(words) % facts
