"""Names for holders."""

import os
import secrets
import socket
import threading

__all__ = ["new_owner"]


def new_owner() -> str:
    """Return ``host:process:thread:random``, never the same twice; also right in a process that was just forked."""
    unique = f":{os.getpid()}:{threading.get_native_id()}:{secrets.token_hex(4)}"
    return socket.gethostname()[:200] + unique
