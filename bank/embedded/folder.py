"""The data folder: finding, checking and creating it."""

import hashlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bank.embedded import account, binaries
from bank.embedded.account import Account
from bank.embedded.errors import failed, unusable

logger = logging.getLogger(__name__)

# The builtin locale: text sorts the same on every machine, and a start never fails for a missing locale.
_INITDB = [
    "--username=postgres",
    "--auth-local=trust",
    "--auth-host=reject",
    "--encoding=UTF8",
    "--no-locale",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
]


@dataclass(frozen=True)
class Folder:
    """A data folder that holds a database cluster of the right version, and the account that owns it."""

    path: Path
    owner: Account

    @property
    def made(self) -> tuple[int, int]:
        """Identifies this cluster, so that another one that is later created at the same path is noticed."""
        status = (self.path / "PG_VERSION").stat()
        return status.st_ino, status.st_mtime_ns


def prepare(configured: Path, *, guard: int) -> Folder:
    """Return the data folder for a configured path, created if it does not exist.

    The caller holds the guard. Raises ImproperlyConfigured where the folder is not usable, OperationalError where
    initdb failed, OSError where the file system refused.
    """
    folder = _locate(configured)
    if _is_empty(folder.path):
        _create(folder, guard=guard)
    _check(folder)
    return folder


def fallback_folder(configured: Path) -> Path:
    """Return the folder that root uses instead of one that the server's account cannot reach."""
    return account.ROOT_STATE / f"data-{short_name(configured)}"


def short_name(path: Path) -> str:
    """Return a short name for a path: a hash in hexadecimal digits."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _locate(configured: Path) -> Folder:
    if not account.is_root():
        return Folder(configured, account.current_account())
    # An existing folder stays in use, as its owner: a later change of permissions must not appear to lose the data.
    for path in (configured, fallback_folder(configured)):
        if not _is_empty(path):
            status = path.stat()
            return Folder(path, Account(status.st_uid, status.st_gid))
    return _place_for_root(configured)


def _place_for_root(configured: Path) -> Folder:
    owner = account.account_for_root()
    if account.has_access(owner, "-x", configured.parent):
        return Folder(configured, owner)
    path = fallback_folder(configured)
    logger.warning(
        "PostgreSQL does not run as root, and its user %s cannot access %s. The data is stored in %s instead.",
        owner.name,
        configured.parent,
        path,
    )
    return Folder(path, owner)


def _is_empty(path: Path) -> bool:
    """Whether the folder does not exist or is empty; one that this process may not read counts as not empty."""
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True
    except PermissionError:
        return False


def _create(folder: Folder, *, guard: int) -> None:
    """Create the cluster in a temporary folder and rename that, so that a kill never leaves half a cluster."""
    new = folder.path.with_name(folder.path.name + ".new")
    # Left by a process that was killed here; the guard ensures that no initdb still writes to it.
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(mode=0o700)
    folder.owner.own(new)
    initdb = binaries.usable_by(folder.owner) / "initdb"
    # initdb inherits the guard: if this process is killed, no other one removes the folder while initdb runs.
    process = account.run([initdb, *_INITDB], folder.owner, cwd=new, env={"PGDATA": str(new)}, pass_fds=[guard])
    if process.returncode:
        shutil.rmtree(new, ignore_errors=True)
        raise failed(folder.path, "could not be created", process.stderr or process.stdout)
    new.rename(folder.path)


def _check(folder: Folder) -> None:
    """Raise ImproperlyConfigured unless the folder belongs to the account and has the right version."""
    uid = folder.path.stat().st_uid
    if uid == 0:
        raise unusable(folder.path, "it belongs to root, and PostgreSQL does not run as root")
    if uid != folder.owner.uid:
        owner = Account(uid, folder.owner.gid)
        raise unusable(folder.path, f"it belongs to {owner.name}, and this process runs as {folder.owner.name}")
    version = _version(folder.path)
    if version is None:
        raise unusable(folder.path, "it is not empty, and does not contain PostgreSQL data")
    if version != binaries.MAJOR_VERSION:
        programs = binaries.MAJOR_VERSION
        raise unusable(
            folder.path,
            f"its version is PostgreSQL {version}, but the programs are PostgreSQL {programs} (the docstring of "
            "bank/embedded/__init__.py describes the upgrade)",
        )


def _version(path: Path) -> str | None:
    try:
        return (path / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return None
