"""The HTTP API of the accounts: reading, deposits, withdrawals, transfers. Requires the extra ``api``."""

from accounts.api.api import account_api
from accounts.api.tokens import TokenUser, make_token

__all__ = ["TokenUser", "account_api", "make_token"]
