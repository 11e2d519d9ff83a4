"""The report as tables, as a page and as a timeline. Nothing is found out here."""

from accounts.lab.anomalies.render.page import as_html
from accounts.lab.anomalies.render.table import as_table
from accounts.lab.anomalies.render.text import as_timeline

__all__ = ["as_html", "as_table", "as_timeline"]
