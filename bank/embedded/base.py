"""The database backend ``bank.embedded``: Django's PostgreSQL backend, with a server included."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.base.creation import TEST_DATABASE_PREFIX
from django.db.backends.postgresql import base
from django.db.backends.postgresql import client as postgresql_client
from psycopg import Connection, OperationalError

from bank.embedded.errors import unavailable
from bank.embedded.roles import APPLICATION_ROLE

if TYPE_CHECKING:
    from bank.embedded.handle import ServerHandle


class DatabaseClient(postgresql_client.DatabaseClient):
    """``manage.py dbshell`` with the psql of the embedded server."""

    @classmethod
    def settings_to_cmd_args_env(
        cls, settings_dict: dict[str, Any], parameters: Any
    ) -> tuple[list[str], dict[str, str] | None]:
        """Return the psql command for the embedded server, which is started if necessary; raise as connecting does."""
        address = _address(settings_dict)
        ours = {"HOST": address["host"], "PORT": address["port"], "USER": address["user"], "PASSWORD": ""}
        args, env = super().settings_to_cmd_args_env({**settings_dict, **ours}, parameters)
        from bank.embedded import binaries

        return [str(binaries.installed() / "psql"), *args[1:]], env


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection to the embedded server; HOST, PORT and PASSWORD of the settings are ignored.

    Without USER it uses the role ``bank``, which owns the database and may create others, but is not a superuser;
    ``postgres`` is the superuser. The first connection of a process raises ImproperlyConfigured where the server cannot
    run on this machine or with this data folder, OperationalError where it did not start; both say what to do instead.
    """

    client_class = DatabaseClient

    def get_connection_params(self) -> dict[str, Any]:
        """Return Django's parameters with the embedded server's address; the server is started if necessary."""
        params = super().get_connection_params()
        params.pop("password", None)
        return {**params, **_address(self.settings_dict)}

    @property
    def pool(self) -> Any:
        """Return Django's pool, whose threads also restart a server that has died."""
        options = self.settings_dict["OPTIONS"]
        pool_options = options.get("pool")
        if pool_options and (pool_options is True or "connection_class" not in pool_options):
            defaults = {"connection_class": _reconnecting(self.settings_dict)}
            options["pool"] = defaults if pool_options is True else {**defaults, **pool_options}
        return super().pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection; a server that has died since the process first connected is started again."""
        if self.pool:
            return super().get_new_connection(conn_params)
        with suppress(self.Database.OperationalError):
            return super().get_new_connection(conn_params)
        # Whatever the error was: the server now runs, so a second error is raised to the caller.
        return super().get_new_connection({**conn_params, **_address(self.settings_dict, reconnect=True)})


def _reconnecting(settings_dict: dict[str, Any]) -> type[Connection[Any]]:
    """Return a connection class that reconnects as ``get_new_connection`` does, for pools."""

    class Reconnecting(Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
            with suppress(OperationalError):
                return super().connect(conninfo, **kwargs)
            return super().connect(conninfo, **{**kwargs, **_address(settings_dict, reconnect=True)})

    return Reconnecting


def _address(settings_dict: dict[str, Any], *, reconnect: bool = False) -> dict[str, str]:
    """Return the address of the settings' server, after making sure that it runs and has the settings' database."""
    handle = _handle(settings_dict, reconnect=reconnect)
    name = settings_dict["NAME"]
    # Django creates and drops test databases itself, and must see if one does not exist.
    ours = name and not name.startswith(TEST_DATABASE_PREFIX) and name != settings_dict["TEST"]["NAME"]
    handle.provide(name if ours else None)
    return {**handle.address, "user": settings_dict["USER"] or APPLICATION_ROLE}


def _handle(settings_dict: dict[str, Any], *, reconnect: bool = False) -> "ServerHandle":
    if os.name != "posix":
        raise unavailable("it runs on Linux and macOS only")
    if not settings_dict.get("PGDATA"):
        raise ImproperlyConfigured("The database engine bank.embedded needs PGDATA, the path of its data folder.")
    # Imported here, because the module fcntl exists only on POSIX systems.
    from bank.embedded.handle import handle_for

    return handle_for(settings_dict["PGDATA"], reconnect=reconnect)
