"""Reports as JSON, CSV and tables. Nothing is computed here."""

from accounts.lab.simulator.render.data import as_csv, as_json
from accounts.lab.simulator.render.table import as_table, require_rich

__all__ = ["as_csv", "as_json", "as_table", "require_rich"]
