"""The report as tables, as a page and as a timeline."""

from django_lockstep.lab.anomalies.render.page import as_html
from django_lockstep.lab.anomalies.render.table import as_table
from django_lockstep.lab.anomalies.render.text import as_timeline

__all__ = ["as_html", "as_table", "as_timeline"]
