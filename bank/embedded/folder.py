"""The data folder: where it is, whose it is, whether it will do, and how a new one comes to be."""

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

# The order of text is the same on every machine, and no missing locale can stop a start.
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
        """What distinguishes this cluster from another one that has the same path later."""
        status = (self.path / "PG_VERSION").stat()
        return status.st_ino, status.st_mtime_ns


def prepare(configured: Path, *, guard: int) -> Folder:
    """Return the data folder that belongs to a configured path, made where it is missing.

    The caller holds the guard. Raises ImproperlyConfigured where the folder will not do, OperationalError where
    PostgreSQL could not fill it, OSError where the file system refused.
    """
    folder = _locate(configured)
    if _is_empty(folder.path):
        _create(folder, guard=guard)
    _check(folder)
    return folder


def fallback(configured: Path) -> Path:
    """Return the folder that serves root in the place of one that the server's account cannot reach."""
    return account.ROOT_STATE / f"data-{short_name(configured)}"


def short_name(path: Path) -> str:
    """Return a name that stands for a path: always the same, short, and of plain letters."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _locate(configured: Path) -> Folder:
    if not account.is_root():
        return Folder(configured, account.mine())
    # What is there goes on being used, as its owner: a later change of permissions must not seem to lose the data.
    for path in (configured, fallback(configured)):
        if not _is_empty(path):
            status = path.stat()
            return Folder(path, Account(status.st_uid, status.st_gid))
    return _place_for_root(configured)


def _place_for_root(configured: Path) -> Folder:
    owner = account.for_root()
    if account.can(owner, "-x", configured.parent):
        return Folder(configured, owner)
    path = fallback(configured)
    logger.warning(
        "PostgreSQL does not run as root; %s, as which it runs, cannot reach %s. The data is kept in %s.",
        owner.name,
        configured.parent,
        path,
    )
    return Folder(path, owner)


def _is_empty(path: Path) -> bool:
    """Tell whether there is nothing in the folder yet; one that may not be looked into is not empty."""
    try:
        return not any(path.iterdir())
    except FileNotFoundError:
        return True
    except PermissionError:
        return False


def _create(folder: Folder, *, guard: int) -> None:
    """Fill a new folder beside its place and move it there whole: a kill leaves the old state or the new one."""
    new = folder.path.with_name(folder.path.name + ".new")
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(mode=0o700)
    folder.owner.own(new)
    initdb = binaries.usable_by(folder.owner) / "initdb"
    # initdb keeps the guard should this process be killed, so that nobody clears the folder under its hands.
    made = account.run([initdb, *_INITDB], folder.owner, cwd=new, env={"PGDATA": str(new)}, pass_fds=[guard])
    if made.returncode:
        shutil.rmtree(new, ignore_errors=True)
        raise failed(folder.path, "could not be made", made.stderr or made.stdout)
    new.rename(folder.path)


def _check(folder: Folder) -> None:
    """Raise ImproperlyConfigured unless the folder is its account's own and of the right version."""
    uid = folder.path.stat().st_uid
    if uid == 0:
        raise unusable(folder.path, "it belongs to root, and PostgreSQL does not run as root")
    if uid != folder.owner.uid:
        owner = Account(uid, folder.owner.gid)
        raise unusable(folder.path, f"it belongs to {owner.name}, and this process runs as {folder.owner.name}")
    version = _version(folder.path)
    if version is None:
        raise unusable(folder.path, "it is not empty, and what it holds is no PostgreSQL data")
    if version != binaries.MAJOR_VERSION:
        programs = binaries.MAJOR_VERSION
        raise unusable(
            folder.path,
            f"it is of PostgreSQL {version}, and the programs are of PostgreSQL {programs} (docs/use/embedded.md says "
            "how to carry the data over)",
        )


def _version(path: Path) -> str | None:
    try:
        return (path / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return None
