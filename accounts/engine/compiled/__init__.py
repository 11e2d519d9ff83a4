"""The compiled engine: one prepared statement, and one round trip, for each kind of change."""
