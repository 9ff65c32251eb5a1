"""Files that come with sparklog besides its modules: the jobs for spark-submit, and presets.

A clone has them as `jobs/` and `conf/` at the top level; an installed wheel inside the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparklog.core.errors import InvalidRequest, Unavailable

JOB_NAMES: Final = ("compact", "consume", "materialize", "produce", "retain", "serve", "verify")
_PACKAGE: Final = Path(__file__).parents[1]
_INSTALLED: Final = "shipped"


def shipped_folder(name: str) -> Path:
    """Return the folder `jobs` or `conf`.

    Raises:
        Unavailable: the installation lacks it.
    """
    for parent in (_PACKAGE / _INSTALLED, _PACKAGE.parent):
        if (parent / name).is_dir():
            return parent / name
    raise Unavailable(f"this installation of sparklog has no {name}: install its wheel")


def job_file(name: str) -> Path:
    """Return the file of a job, for spark-submit.

    Raises:
        InvalidRequest: there is no such job. Unavailable: the installation has no jobs.
    """
    if name not in JOB_NAMES:
        raise InvalidRequest(f"no such job: {name!r}; choose from {', '.join(JOB_NAMES)}")
    return shipped_folder("jobs") / f"{name}.py"
