"""The line between driver and brokers, over real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from sparklog.spark.serve.broker_plan import ControlPoint
from sparklog.spark.serve.control_channel import ControlChannel, ControlServer
from tests.harness.waiting import eventually

TIMEOUT_S = 60
TOKEN = "right"  # not a secret, a test's

Said = SimpleQueue[tuple[int, Mapping[str, Any]]]


@contextmanager
def server() -> Iterator[tuple[ControlServer, ControlPoint, Said]]:
    said: Said = SimpleQueue()
    one = ControlServer(lambda broker, event: said.put((broker, event)), TOKEN)
    port = one.start("127.0.0.1")
    try:
        yield one, ControlPoint("127.0.0.1", port, TOKEN), said
    finally:
        one.close()


def test_a_broker_reports_is_stopped_and_hangs_up() -> None:
    with server() as (driver, point, said):
        line = ControlChannel(point, 7)
        assert line.own_host == "127.0.0.1"
        line.tell({"event": "started", "pid": 1})
        assert said.get(timeout=TIMEOUT_S) == (7, {"event": "started", "pid": 1, "line": 1})
        assert not line.stop_asked()
        driver.stop_brokers()
        eventually(line.stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
        line.close()
        assert said.get(timeout=TIMEOUT_S) == (7, {"event": "hung up", "line": 1})


def test_a_broker_that_starts_while_all_are_stopped_is_stopped_too() -> None:
    with server() as (driver, point, _):
        driver.stop_brokers()
        line = ControlChannel(point, 1)
        eventually(line.stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
        line.close()


@pytest.mark.parametrize(
    "hello",
    [
        b'{"token": "wrong", "broker": 1}\n{"event": "ready"}\n',
        b'{"broker": 1}\n{"event": "ready"}\n',
        b'{"token": "right", "broker": "1"}\n{"event": "ready"}\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"x" * 100_000,
    ],
)
def test_stranger_on_the_control_port_is_ignored(hello: bytes) -> None:
    with server() as (_, point, said):
        with socket.create_connection((point.host, point.port), TIMEOUT_S) as stranger:
            try:
                stranger.sendall(hello)
                assert stranger.recv(1) == b""
            except ConnectionError:
                pass  # it hung up while we were still talking
        line = ControlChannel(point, 2)
        line.tell({"event": "started"})
        assert said.get(timeout=TIMEOUT_S) == (2, {"event": "started", "line": 1}), (
            "ours is served after it"
        )
        line.close()


def test_a_driver_out_of_reach_is_no_reason_not_to_serve(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        line = ControlChannel(ControlPoint("127.0.0.1", nobody.getsockname()[1], TOKEN), 1)
    assert "the driver was not reached" in capfd.readouterr().err
    assert line.own_host
    line.tell({"event": "ready"})
    assert not line.stop_asked()
    line.close()


def test_broker_continues_when_its_driver_is_gone() -> None:
    with server() as (_, point, _):
        line = ControlChannel(point, 1)
    line.tell({"event": "ready"})
    assert not line.stop_asked()
    line.close()


def test_unknown_orders_are_ignored() -> None:
    with socket.create_server(("127.0.0.1", 0)) as driver:
        line = ControlChannel(ControlPoint("127.0.0.1", driver.getsockname()[1], TOKEN), 1)
        end, _ = driver.accept()
        with end:
            assert json.loads(end.makefile("rb").readline()) == {"token": TOKEN, "broker": 1}
            end.sendall(b'{"order": "dance"}\n{"order": "stop"}\n')
            eventually(line.stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
    line.close()
