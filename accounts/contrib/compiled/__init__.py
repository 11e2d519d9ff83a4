"""The changes of balances in fewer round trips: SQL of the query set API, compiled once, each change with its entry.

Optional: installed in ``INSTALLED_APPS`` it registers counterparts of the methods of `accounts.models`, which run only
with ``ACCOUNTS_ENGINE = "compiled"``, or in a block of `accounts.engine.use_engine`.
"""
