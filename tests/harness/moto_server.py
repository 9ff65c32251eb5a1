"""A real S3 server (moto) in a process of its own, for tests and demonstrations.

Run as a script it serves on a free port of this machine, prints the port, and ends when its
standard input does. So the server ends with its parent, for any kind of death.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

REGION = "us-east-1"
READY_WITHIN_S = 60.0


class MotoServer:
    """Address of the server, and settings to reach it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.endpoint_url = f"http://127.0.0.1:{port}"

    def environment(self, endpoint_url: str | None = None) -> dict[str, str]:
        """Return the variables that lead clients here, or to a proxy in front."""
        return {
            "AWS_ENDPOINT_URL": endpoint_url or self.endpoint_url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def make_bucket(self, name: str) -> None:
        """Create a bucket; moto takes unsigned requests."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=READY_WITHIN_S)
        try:
            connection.request("PUT", f"/{name}")
            status = connection.getresponse().status
        finally:
            connection.close()
        assert status == 200, f"moto did not make the bucket. status={status}"


@contextmanager
def moto_server() -> Iterator[MotoServer]:
    """Start a server and stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        assert port, "moto did not start"
        yield MotoServer(int(port))
    finally:
        process.stdin.close()
        process.wait(READY_WITHIN_S)
        process.stdout.close()


def serve() -> None:
    """Serve until standard input ends."""
    # Only the server's own process needs these, and they take seconds to import.
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

    from sparklog.spark.demo.s3_server import s3_app  # noqa: PLC0415

    class KeptConnections(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # werkzeug closes after every answer otherwise
        disable_nagle_algorithm = True

        def log(self, *_: object) -> None:
            """Keep quiet."""

    server = make_server("127.0.0.1", 0, s3_app(), threaded=True, request_handler=KeptConnections)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    serve()
