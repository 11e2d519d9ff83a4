"""The system account that the server runs as, and running its programs as that account."""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bank.embedded import locks
from bank.embedded.errors import unavailable

# Root's processes keep here what the server's account cannot reach elsewhere; only root can put anything into it.
ROOT_STATE = Path("/var/lib/bank-embedded")
ROOT_ACCOUNT = "pgserver"

_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "TZ")


@dataclass(frozen=True)
class Account:
    """A system account by its numbers."""

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
        """Make this account the owner of a file that this process made; raise OSError where it may not."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def mine() -> Account:
    """Return the account of this process."""
    return Account(os.geteuid(), os.getegid())


def is_root() -> bool:
    """Tell whether this process runs as root, as which PostgreSQL refuses to run."""
    return os.geteuid() == 0


def root_state() -> Path:
    """Return root's folder, made where it is missing; everybody can pass through it, only root can write."""
    ROOT_STATE.mkdir(parents=True, exist_ok=True)
    # Our own folder; made under a strict umask it would be closed to the server's account.
    ROOT_STATE.chmod(0o755)
    return ROOT_STATE


def for_root() -> Account:
    """Return the account that runs a new server for root, made where it is missing; raise ImproperlyConfigured."""
    # useradd fails while another one runs; processes with different data folders meet only here.
    with locks.holding(root_state() / "guard"):
        try:
            entry = pwd.getpwnam(ROOT_ACCOUNT)
        except KeyError:
            _add_account()
            entry = pwd.getpwnam(ROOT_ACCOUNT)
    return Account(entry.pw_uid, entry.pw_gid)


def _add_account() -> None:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", ROOT_ACCOUNT]
    added = run(command, mine())
    if added.returncode:
        raise unavailable(
            f"PostgreSQL does not run as root, and the system user {ROOT_ACCOUNT} for it could not be made "
            f"({added.stderr.strip()}). Make it, or run as an ordinary user"
        )


def run(
    command: Sequence[str | Path],
    account: Account,
    *,
    cwd: Path = Path("/"),
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as the account; raise ImproperlyConfigured where it cannot even begin."""
    other = account.uid != os.geteuid()
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
            # Ctrl-C is for this process, which then knows what it leaves behind, not for half of a start.
            start_new_session=True,
            user=account.uid if other else None,
            group=account.gid if other else None,
            extra_groups=[] if other else None,
        )
    except OSError as error:
        raise unavailable(f"{command[0]} cannot be run as {account.name}: {error.strerror}") from error


def environment() -> dict[str, str]:
    """Return what programs need of the environment and nothing else.

    A server keeps it readable in ``/proc`` for as long as it runs: no secret of the application may be in it. PG
    variables would turn into settings.
    """
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"HOME": "/", "LC_ALL": "C"}


def can(account: Account, right: str, path: Path) -> bool:
    """Tell whether the account really has a right ("-x", "-r", "-w") to a path, by letting it try."""
    return run(["/bin/sh", "-c", f'test {right} "$0"', path], account).returncode == 0
