"""The system account of the server, and running programs as that account."""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bank.embedded import locks
from bank.embedded.errors import unavailable

# Used by root's processes for files that the server's account cannot reach elsewhere; only root can write to it.
ROOT_STATE = Path("/var/lib/bank-embedded")
ROOT_ACCOUNT = "pgserver"

_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "TZ")


@dataclass(frozen=True)
class Account:
    """A system account by user and group id."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        """The account's name, or its number where it has none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"

    def own(self, path: Path) -> None:
        """Make this account the owner of a file that this process created; raise OSError without permission."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def current_account() -> Account:
    return Account(os.geteuid(), os.getegid())


def is_root() -> bool:
    """Whether this process runs as root, under which PostgreSQL refuses to run."""
    return os.geteuid() == 0


def root_state() -> Path:
    """Return root's folder, created if it does not exist; every user can traverse it, only root can write."""
    ROOT_STATE.mkdir(parents=True, exist_ok=True)
    # Under a strict umask, mkdir would close it to the server's account.
    ROOT_STATE.chmod(0o755)
    return ROOT_STATE


def account_for_root() -> Account:
    """Return the account that runs a new server for root, created if necessary; raise ImproperlyConfigured."""
    # useradd fails while another one runs, and processes with different data folders share no other lock.
    with locks.holding(root_state() / "guard"):
        try:
            entry = pwd.getpwnam(ROOT_ACCOUNT)
        except KeyError:
            _add_account()
            entry = pwd.getpwnam(ROOT_ACCOUNT)
    return Account(entry.pw_uid, entry.pw_gid)


def _add_account() -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", ROOT_ACCOUNT]
    added = run(command, current_account())
    if added.returncode:
        raise unavailable(
            f"PostgreSQL does not run as root, and the system user {ROOT_ACCOUNT} for it could not be created "
            f"({added.stderr.strip()}). Create it, or run as an ordinary user"
        )


def run(
    command: Sequence[str | Path],
    account: Account,
    *,
    cwd: Path = Path("/"),
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program as the account and wait for it; raise ImproperlyConfigured where it cannot be started."""
    is_foreign = account.uid != os.geteuid()
    try:
        return subprocess.run(  # noqa: S603 - the programs are named by this package
            [os.fspath(part) for part in command],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env={**environment(), **(env or {})},
            pass_fds=pass_fds,
            umask=0o077,
            # Ctrl-C must interrupt only this process, which cleans up, and not initdb or pg_ctl half-way.
            start_new_session=True,
            user=account.uid if is_foreign else None,
            group=account.gid if is_foreign else None,
            extra_groups=[] if is_foreign else None,
        )
    except OSError as error:
        raise unavailable(f"{command[0]} cannot be run as {account.name}: {error.strerror}") from error


def environment() -> dict[str, str]:
    """Return only the environment variables that the programs need.

    The server's environment stays readable in ``/proc`` while it runs, so the application's secrets must not be in it.
    PG variables would change its settings.
    """
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"HOME": "/", "LC_ALL": "C"}


def has_access(account: Account, right: str, path: Path) -> bool:
    """Whether the account has a right ("-x", "-r", "-w") to a path, tested by a process of that account."""
    return run(["/bin/sh", "-c", f'test {right} "$0"', path], account).returncode == 0
