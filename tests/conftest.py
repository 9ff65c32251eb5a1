"""What holds for every test: no network but this machine, and reproducible property tests."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import HealthCheck, settings

LOOPBACK = ("127.", "::1", "localhost", "::ffff:127.")

# Property tests run beside Spark sessions on small machines, where a deadline measures the weather.
settings.register_profile(
    "sparklog", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sparklog")


def _refuse_other_machines(event: str, args: tuple[Any, ...]) -> None:
    """Fail a connection that leaves this machine: the suite needs no network once set up."""
    if event != "socket.connect":
        return
    address = args[1]
    if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
        raise AssertionError(f"a test opened a connection to another machine: {address}")


sys.addaudithook(_refuse_other_machines)
