"""Converts errors to the JSON that the queue stores, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from accounts.amounts import PLACES
from accounts.contrib.queued.errors import ChangeFailed
from accounts.errors import AccountError, IdempotencyKeyReused, InsufficientFunds, InvalidAmount

__all__ = ["describe_refusal", "refusal_from_data", "refusal_to_data"]

_MONEY = ("amount", "balance", "overdraft_limit", "recorded")
_KNOWN: dict[str, type[AccountError]] = {
    kind.__name__: kind for kind in (ChangeFailed, IdempotencyKeyReused, InsufficientFunds, InvalidAmount)
}
_GONE = "DoesNotExist"
_FACTS = (*_MONEY, "idempotency_key", "rule")
_CAUSES = ("cause", "sqlstate", "constraint")
_WORDS = {
    _GONE: _("an account does not exist any more"),
    ChangeFailed.__name__: _("failed: %(message)s"),
    IdempotencyKeyReused.__name__: _("the idempotency key belongs to another change, with amount %(recorded)s"),
    InsufficientFunds.__name__: _("not covered: balance %(balance)s, overdraft limit %(overdraft_limit)s"),
    InvalidAmount.__name__: _("invalid: %(rule)s"),
}


def refusal_to_data(error: AccountError | None) -> dict[str, Any]:
    """Return the error as JSON values; None stands for an account that does not exist."""
    if error is None:
        return {"error": _GONE}
    # Only known attributes: others may hold objects of the caller, which JSON cannot represent.
    facts = {name: str(value) for name, value in vars(error).items() if name in _FACTS}
    causes = {name: value for name, value in vars(error).items() if name in _CAUSES}
    return {"error": type(error).__name__, "message": error.args[0], **facts, **causes}


def refusal_from_data(model: type[Any], data: dict[str, Any]) -> Exception:
    """Return the error that `refusal_to_data` converted."""
    name = str(data["error"])
    if name == _GONE:
        gone: Exception = model.DoesNotExist(f"An account ({model._meta.label}) of the queued change does not exist")
        return gone
    facts: dict[str, Any] = {key: Decimal(value) if key in _MONEY else value for key, value in data.items()}
    del facts["error"]
    # An unknown name is that of a subclass in the project, or of a newer version of this app.
    return _KNOWN.get(name, AccountError)(facts.pop("message"), **facts)


def describe_refusal(data: dict[str, Any]) -> str:
    """Return a translated sentence about the error."""
    words = _WORDS.get(str(data["error"]))
    if words is None:
        return str(data["message"])
    facts = {key: number_format(value, PLACES) if key in _MONEY else value for key, value in data.items()}
    return str(words) % facts
