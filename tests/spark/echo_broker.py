"""A broker that only echoes: what a broker's task does around its broker, without one."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping

from sparklog.broker.runtime.identity import Ready
from sparklog.core.errors import InvalidConfig

POLL_S = 0.1
COMPLAIN = b"complain"
"""At this text it logs an error as asyncio does."""


def run(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Answer each connection with this process' id and what it sent, until stopped."""
    if configs.get("broker.rack") == "wrong":
        raise InvalidConfig("there is no such rack. broker.rack=wrong")
    host, port = _address(configs["listeners"])
    with socket.create_server((host, port)) as server:
        server.settimeout(POLL_S)
        advertised = _address(configs["advertised.listeners"])[0]
        ready(Ready(int(configs["node.id"]), 1, advertised, server.getsockname()[1]))
        while not stop():
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            with client:
                text = client.recv(4096)
                if text == COMPLAIN:
                    logging.getLogger("asyncio").error("Task exception was never retrieved")
                client.sendall(f"{os.getpid()} ".encode() + text)


def _address(listener: str) -> tuple[str, int]:
    host, _, port = listener.partition("://")[2].rpartition(":")
    return host, int(port)
