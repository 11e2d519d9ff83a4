"""``manage.py demo``: the demo bank with something in every room, on this machine alone."""

from __future__ import annotations

import socket
import webbrowser
from argparse import ArgumentParser
from typing import Any

from django.contrib.staticfiles.management.commands.runserver import Command as RunserverCommand
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from bank.demo_data import SUPERUSER, create_demo_data, create_superuser
from django_lockstep.lab import conf


class Server(RunserverCommand):
    """The development server, which says where the front page is when it can be opened."""

    addr: str
    opens_browser = False

    def on_bind(self, server_port: int) -> None:
        address = f"http://{self.addr}:{server_port}/"
        self.stdout.write(f"The demo is at {address} until Ctrl-C.")
        self.stdout.flush()  # into a pipe it would otherwise arrive at the end
        if self.opens_browser:
            webbrowser.open(address)


def _require_free(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server, which may follow another one
        try:
            probe.bind((address.strip("[]"), port))
        except OSError as error:
            raise CommandError(f"Cannot listen on {address}:{port}: {error.strerror}. Choose another --port") from error


class Command(BaseCommand):
    """Exit 2 where the environment turns off what the demo needs."""

    help = (
        "Migrates, creates demo data and a superuser, and starts the demo on localhost. There everyone may run races: "
        "not for a server that others reach."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--address", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="the port (default: %(default)s; 0: a free one)")
        parser.add_argument("--open", action="store_true", help="open the front page in a browser")

    def handle(self, *args: object, **options: Any) -> None:
        if not conf.public():
            raise CommandError(
                "The demo needs LOCKSTEP_LAB_PUBLIC: start it as `manage.py demo`, without BANK_DEMO in the "
                "environment",
                returncode=2,
            )
        _require_free(options["address"], options["port"])
        call_command("migrate", verbosity=0, interactive=False)
        create_demo_data()
        self._announce(create_superuser())
        server = Server()
        server.opens_browser = options["open"]
        # Without the reloader, which would start a second process, and migrate and print all of this twice. Insecure is
        # how runserver calls it to serve static files without DEBUG.
        place = f"{options['address']}:{options['port']}"
        call_command(server, place, use_reloader=False, skip_checks=True, insecure_serving=True)

    def _announce(self, password: str | None) -> None:
        if password is None:
            self.stdout.write(f"Log in as {SUPERUSER!r} with the password that you have given it.")
        else:
            self.stdout.write(f"Log in as {SUPERUSER!r} with the password {password}, or with the button on the pages.")
