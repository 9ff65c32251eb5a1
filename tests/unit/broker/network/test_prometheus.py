"""The page over a real socket."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest

from sparklog.broker.network import prometheus
from sparklog.broker.network.prometheus import REQUEST_BYTES_MAX, MetricsServer
from sparklog.broker.runtime.metrics import BrokerMetrics


def ask(raw: bytes, metrics: BrokerMetrics | None = None) -> bytes:
    """Serve, send `raw`, and return all that comes back."""

    async def talk() -> bytes:
        server = MetricsServer(metrics or BrokerMetrics())
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer

    return asyncio.run(talk())


def test_prometheus_gets_the_page() -> None:
    metrics = BrokerMetrics()
    metrics.produced("flights", 2, 20)

    async def scrape() -> tuple[str, str]:
        server = MetricsServer(metrics)
        port = await server.start("127.0.0.1", 0)

        def get() -> tuple[str, str]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics?x=1", timeout=10) as got:
                return got.headers["Content-Type"], got.read().decode()

        try:
            return await asyncio.to_thread(get)
        finally:
            await server.stop()

    kind, text = asyncio.run(scrape())
    assert kind.startswith("text/plain; version=0.0.4")
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="flights"} 20.0' in text


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\r\n\r\n", b"400 Bad Request"),
    ],
)
def test_other_requests_are_answered_by_their_status(asked: bytes, status: bytes) -> None:
    assert ask(asked).startswith(b"HTTP/1.1 " + status)


def test_head_sends_no_body() -> None:
    answer = ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"\r\n\r\n")


def test_a_request_without_end_is_dropped() -> None:
    assert ask(b"x" * (REQUEST_BYTES_MAX + 4)) == b""


def test_debug_state_is_refused_from_other_machines() -> None:
    server = MetricsServer(BrokerMetrics(), lambda: {"broker": {"id": 1}})
    asked = b"GET /debug/state HTTP/1.1\r\n\r\n"
    assert server._answer(asked, is_local=False).startswith(b"HTTP/1.1 403 Forbidden")
    assert server._answer(asked, is_local=True).endswith(b'{\n "broker": {\n  "id": 1\n }\n}')


def test_readiness_is_a_status() -> None:
    asked = b"GET /readyz HTTP/1.1\r\n\r\n"
    ready = MetricsServer(BrokerMetrics(), is_ready=lambda: True)
    assert ready._answer(asked, is_local=False).startswith(b"HTTP/1.1 200 OK")
    behind = MetricsServer(BrokerMetrics(), is_ready=lambda: False)
    assert behind._answer(asked, is_local=False).startswith(b"HTTP/1.1 503 Service Unavailable")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
    ],
)
def test_loopback_alone_counts_as_the_same_machine(host: str, local: bool) -> None:
    assert prometheus._is_loopback(host) is local
