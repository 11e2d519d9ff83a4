"""Many worker processes on one database: measured, and judged by what the database holds at the end.

`race.race` puts strategies under a load, `rounds.tell` has them play a short story many times; both yield rows of
plain data, one a strategy. A `crew.Crew` is the worker processes that do the work.
"""
