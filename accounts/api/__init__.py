"""The bank over HTTP: accounts, deposits, withdrawals, transfers. Needs the extra ``api``."""

from accounts.api.api import account_api
from accounts.api.tokens import TokenUser, make_token

__all__ = ["TokenUser", "account_api", "make_token"]
