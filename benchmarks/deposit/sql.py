"""The deposit in SQL, for pgbench and psycopg: the same statements, with each client's notation of parameters.

Each is a template: ``{account}``, ``{accounts}``, ``{amount}``, ``{balance}`` and ``{version}`` stand for parameters,
``{account_table}`` and ``{entry_table}`` for quoted names.
"""

from __future__ import annotations

from django.db import connection

from accounts.amounts import TOO_LARGE
from accounts.models import Account, Entry

UPDATE = """
UPDATE {account_table}
SET balance = balance + {amount}::numeric, version = version + 1, entry_count = entry_count + 1,
    updated_at = statement_timestamp()
WHERE id = {account}::bigint AND balance < {too_large}::numeric - {amount}::numeric
RETURNING id, balance, version
"""
"""One guarded UPDATE, which also checks the limit."""

ONE_STATEMENT = f"""
WITH changed AS ({UPDATE.strip()})
INSERT INTO {{entry_table}} (account_id, amount, balance_after, version_after)
SELECT id, {{amount}}::numeric, balance, version FROM changed
RETURNING balance_after, version_after, id
"""
"""The same with the entry: a deposit in one round trip, and the yardstick."""

LOCK = "SELECT balance, version FROM {account_table} WHERE id = {account}::bigint FOR NO KEY UPDATE"
"""First of three statements in a transaction."""
WRITE = """
UPDATE {account_table} SET balance = {balance}::numeric + {amount}::numeric, version = {version}::bigint + 1,
entry_count = entry_count + 1, updated_at = statement_timestamp() WHERE id = {account}::bigint
"""
"""Second: the new balance, computed from what was read under the lock."""
ENTRY = """
INSERT INTO {entry_table} (account_id, amount, balance_after, version_after) VALUES
({account}::bigint, {amount}::numeric, {balance}::numeric + {amount}::numeric, {version}::bigint + 1)
"""
"""Third: the entry."""

BATCH = """
WITH given AS MATERIALIZED (
  SELECT account_id, row_number() OVER (PARTITION BY account_id ORDER BY number) AS place
  FROM unnest({accounts}) WITH ORDINALITY AS listed (account_id, number)
), sums AS MATERIALIZED (
  SELECT account_id, count(*) AS number FROM given GROUP BY account_id
), locked AS MATERIALIZED (
  SELECT id FROM {account_table} WHERE id IN (SELECT account_id FROM sums) ORDER BY id FOR NO KEY UPDATE
), changed AS (
  UPDATE {account_table} AS account
  SET balance = account.balance + sums.number * {amount}::numeric, version = account.version + sums.number,
      entry_count = account.entry_count + sums.number, updated_at = statement_timestamp()
  FROM sums JOIN locked ON locked.id = sums.account_id WHERE account.id = locked.id
  RETURNING account.id, account.balance, account.version, sums.number
)
INSERT INTO {entry_table} (account_id, amount, balance_after, version_after)
SELECT id, {amount}::numeric, balance - (number - place) * {amount}::numeric, version - (number - place)
FROM changed JOIN given ON given.account_id = changed.id ORDER BY id, place
"""
"""Many deposits at once: the rows are locked in primary-key order, and every deposit has its entry."""


def fill_template(template: str, **parameters: str) -> str:
    """Return the statement with its tables, and with these parameters as the client writes them, on one line."""
    quote = connection.ops.quote_name
    tables = {"account_table": quote(Account._meta.db_table), "entry_table": quote(Entry._meta.db_table)}
    return " ".join(template.format(**tables, too_large=TOO_LARGE, **parameters).split())
