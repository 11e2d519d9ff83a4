"""A schedule as a spec for PostgreSQL's isolationtester."""
