"""Programs at the GraphQL API."""

from dataclasses import dataclass
from typing import Any

from django.test import Client

from django_lockstep.editing.tokens import issue

PATH = "/editing/graphql/"

RESULT = """
    lock_result current_status fk_current_status { table_name record current_status } table record editor locked_by
    since expires_at must_end { id editor locked_by holds { table_name } note } present { editor } lost token
"""

TRANSITION = f"mutation ($wanted: TransitionInput!) {{ transition(wanted: $wanted) {{ {RESULT} }} }}"
CHECK_OUT = f"""
    mutation ($table: String!, $record: String, $options: CheckOutOptions) {{
        check_out(table: $table, record: $record, options: $options) {{ {RESULT} }}
    }}
"""
TAKE_OVER = CHECK_OUT.replace("check_out(", "take_over(")
CHECK_IN = f"""
    mutation ($table: String!, $record: String, $token: String) {{
        check_in(table: $table, record: $record, token: $token) {{ {RESULT} }}
    }}
"""
EXTEND = f"""
    mutation ($table: String!, $record: String, $token: String, $ttl: Float) {{
        extend(table: $table, record: $record, token: $token, ttl: $ttl) {{ {RESULT} }}
    }}
"""
STATUS = f"""
    query ($table: String!, $record: String, $token: String) {{
        status(table: $table, record: $record, token: $token) {{ {RESULT} }}
    }}
"""
TABLES = f"{{ tables {{ {RESULT} }} }}"
OUT = "query ($table: String) { checked_out(table: $table) { table record editor } }"


@dataclass
class Asker:
    """A program with a token."""

    user: Any

    def post(self, query: str, **variables: Any) -> Any:
        client = Client(headers={"Authorization": f"Bearer {issue(self.user)}"})
        return client.post(PATH, {"query": query, "variables": variables}, content_type="application/json")

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the one field that the query asks for."""
        answer = self.post(query, **variables)
        body = answer.json()
        assert answer.status_code == 200, body
        assert "errors" not in body, body
        (data,) = body["data"].values()
        return data

    def fail(self, query: str, **variables: Any) -> Any:
        """Return the extensions of the error with which all of it fails."""
        answer = self.post(query, **variables)
        body = answer.json()
        assert (answer.status_code, body["data"]) == (200, None), body
        (error,) = body["errors"]
        return error["extensions"]
