"""Rules for all tests: no network but this machine, property tests that repeat, quick Java."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.asyncio_errors import AsyncioErrors
from tests.harness.quick_jvm import start_java_quickly

SLOWEST_FIRST = ("tests/spark/kill/", "tests/spark/", "tests/sim/", "tests/interop/")
"""Folders whose files go first: the processes that share the suite's files then end together.

`make test` runs three, also on two processors. A test of Spark waits for one process after the
other to start, and keeps three quarters of a processor busy.
"""
collect_ignore = ["example"]
"""A project of its own, which tests/docs run in a process of its own."""
LOOPBACK = ("127.", "::1", "localhost", "::ffff:127.")

# Property tests run beside Spark sessions on small machines, where a deadline measures the load.
# A commit passes or fails by its content, not by drawn examples. `make explore` draws new ones.
for profile, examples in (("sparklog", 100), ("explore", 1000)):
    settings.register_profile(
        profile,
        derandomize=profile == "sparklog",
        max_examples=examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("sparklog")


def pytest_configure(config: pytest.Config) -> None:
    """Fail on errors that asyncio logs."""
    config.pluginmanager.register(AsyncioErrors())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the slowest first; the rest stays as it is."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(name: str) -> int:
    found = (n for n, folder in enumerate(SLOWEST_FIRST) if name.startswith(folder))
    return next(found, len(SLOWEST_FIRST))


def _is_of_this_machine(host: str) -> bool:
    """Return whether an address is loopback or of an interface here: no other can be bound."""
    if host.startswith(LOOPBACK):
        return True
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _refuse_other_machines(event: str, args: tuple[Any, ...]) -> None:
    """Fail a connection that leaves this machine: the suite needs no network once set up."""
    # To connect a datagram socket asks for the way there, and sends nothing.
    if event != "socket.connect" or args[0].type == socket.SOCK_DGRAM:
        return
    address = args[1]
    if isinstance(address, tuple) and not _is_of_this_machine(str(address[0])):
        raise AssertionError(f"a test opened a connection to another machine: {address}")


# A shell's background jobs ignore interrupts, and so would all processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(_refuse_other_machines)
start_java_quickly()
