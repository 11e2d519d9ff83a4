"""The few statements that every change of a balance comes down to, compiled once and sent in one round trip each."""

from accounts.statements.compiling import Statements
from accounts.statements.ledger import Ledger, ledger_of

__all__ = ["Ledger", "Statements", "ledger_of"]
