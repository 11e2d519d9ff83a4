"""The bank over HTTP: accounts, deposits, withdrawals, transfers. Needs the extra ``api``."""

from accounts.api.api import account_api
from accounts.api.tokens import make_token, user_of_token

__all__ = ["account_api", "make_token", "user_of_token"]
