"""What a statement touches, by its text and the catalog: rows, locks, keys; and when two steps depend on each other."""
