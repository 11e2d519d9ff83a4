"""Makes a schedule happen: actors in threads, stopped before each statement, and which of them wait."""
