"""Names for holders."""

import os
import secrets
import socket
import threading

__all__ = ["UniqueOwner", "new_owner"]


class UniqueOwner(str):
    """A name that only one claim uses: a lease in this name certainly belongs to it."""

    __slots__ = ()


def new_owner() -> UniqueOwner:
    """Return ``host:process:thread:random``, never the same twice; also right in a process that was just forked."""
    unique = f":{os.getpid()}:{threading.get_native_id()}:{secrets.token_hex(4)}"
    return UniqueOwner(socket.gethostname()[:200] + unique)
