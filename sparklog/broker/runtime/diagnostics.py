"""Diagnostics of a broker process: log levels by package, and stack traces on a signal.

`SPARKLOG_LOG=broker.produce:DEBUG,log:WARNING` sets the level of `sparklog.broker.produce` and
everything below it, and that of `sparklog.log`. A level alone (`SPARKLOG_LOG=DEBUG`) is that of the
whole process. SIGUSR1 writes the stack of every thread to standard error; the broker goes on.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
from collections.abc import Mapping
from typing import Final

from sparklog.broker.runtime.cause import CauseFilter
from sparklog.core.errors import InvalidConfig

LOG_VARIABLE: Final = "SPARKLOG_LOG"
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s%(cause)s"
"""`cause` is a field of `CauseFilter`."""
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_PACKAGE: Final = "sparklog"
_EVERYTHING: Final = ""
_STDERR: Final = 2
"""File descriptor: a stack dump must not wait for a lock of Python's own streams."""


def parse_log_levels(text: str) -> dict[str, str]:
    """Return levels by logger; the empty name stands for the whole process.

    Raises:
        InvalidConfig: an entry is neither LEVEL nor PACKAGE:LEVEL.
    """
    levels: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, level = entry.rpartition(":")
        if level.upper() not in _LEVELS or (colon and not name):
            raise InvalidConfig(
                f"{LOG_VARIABLE} takes LEVEL or PACKAGE:LEVEL, separated by commas, such as "
                f"broker.produce:DEBUG; a level is one of {', '.join(_LEVELS)}. entry={entry!r}"
            )
        package = name.removeprefix(f"{_PACKAGE}.")
        logger_name = f"{_PACKAGE}.{package}" if package and package != _PACKAGE else name
        levels[logger_name] = level.upper()
    return levels


def start_diagnostics(log_level: str, environment: Mapping[str, str]) -> None:
    """Log to standard error, and dump stacks there on SIGUSR1.

    Args:
        log_level: level of the whole process, unless `SPARKLOG_LOG` gives another.
        environment: variables of the process; only `SPARKLOG_LOG` is read.

    Raises:
        InvalidConfig: see `parse_log_levels`.
    """
    levels = parse_log_levels(environment.get(LOG_VARIABLE, ""))
    handler = logging.StreamHandler()
    handler.addFilter(CauseFilter())
    level = levels.pop(_EVERYTHING, log_level)
    logging.basicConfig(level=level, format=LOG_FORMAT, handlers=[handler])
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    faulthandler.register(signal.SIGUSR1, file=_STDERR, all_threads=True)
