"""DistantServer: a server of this machine as clients far away have it, for requests of one packet.

It forwards connections, and holds what a client sends for the latency. Answers pass at once. So
each request takes longer by the latency, and a connection opens without it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Final

LOOPBACK: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 18
ACCEPT_PATIENCE_S: Final = 0.02


class DistantServer(ThreadingTCPServer):
    """Listens on `port`, and forwards to another one."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream_port: int, latency_s: float) -> None:
        """Hold what goes to `upstream_port` for `latency_s`."""
        super().__init__((LOOPBACK, 0), _Connection)
        self.port: int = self.server_address[1]
        self.upstream_port = upstream_port
        self.latency_s = latency_s


class _Connection(BaseRequestHandler):
    server: DistantServer

    def handle(self) -> None:
        """Forward both ways until one side closes."""
        with socket.create_connection((LOOPBACK, self.server.upstream_port)) as upstream:
            for one in (self.request, upstream):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Thread(
                target=_forward, args=(upstream, self.request, lambda: None), daemon=True
            ).start()
            _forward(self.request, upstream, self._hold)

    def _hold(self) -> None:
        time.sleep(self.server.latency_s)  # the delay is what this server adds


def _forward(source: socket.socket, target: socket.socket, hold: Callable[[], None]) -> None:
    try:
        while data := source.recv(CHUNK_BYTES):
            hold()
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side is gone, so the connection ends


@contextmanager
def distant(upstream_port: int, latency_s: float) -> Iterator[int]:
    """Serve a port of this machine `latency_s` away until the end; yields its port there."""
    with DistantServer(upstream_port, latency_s) as server:
        thread = Thread(target=server.serve_forever, args=(ACCEPT_PATIENCE_S,), daemon=True)
        thread.start()
        try:
            yield server.port
        finally:
            server.shutdown()
            thread.join()
