"""Side by side with PostgreSQL's own pgbench and with other packages, in one run: ``python -m benchmarks``.

A suite is a module with a ``SUITE`` (`benchmarks.suite.Suite`), named in `benchmarks.suite.SUITES`. Suites whose
contenders do the same work hand them to `benchmarks.contest`, which interleaves them in rounds.
"""
