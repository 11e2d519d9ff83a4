"""Reports as JSON, tables and plots. Nothing is computed here."""

from django_lockstep.lab.simulator.render.data import as_json
from django_lockstep.lab.simulator.render.plot import FORMATS, as_plot, require_matplotlib
from django_lockstep.lab.simulator.render.table import as_table

__all__ = ["FORMATS", "as_json", "as_plot", "as_table", "require_matplotlib"]
