"""Many worker processes on one database: measured, and judged by what the database holds at the end.

`trials.run_trials` puts strategies under a load, and yields rows of plain data, one for each strategy. A
`pool.WorkerPool` holds the worker processes that do the work.
"""
