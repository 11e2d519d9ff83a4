"""The command line: ``python -m benchmarks --help``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    from benchmarks.command import main

    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)  # a shell's exit code after Ctrl-C; the database is already dropped
