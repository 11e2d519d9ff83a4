"""The race lab: runs and measures concurrent code on a real PostgreSQL. It knows callables and SQL, not accounts."""
