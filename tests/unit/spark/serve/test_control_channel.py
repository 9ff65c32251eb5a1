"""The line between driver and brokers, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from sparklog.spark.serve.broker_plan import ControlPoint
from sparklog.spark.serve.control_channel import ControlChannel, ControlServer
from sparklog.spark.serve.signed_line import SignedLine, accept
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


def test_one_broker_of_two_is_asked_to_drain() -> None:
    with server() as (driver, point, said):
        first, second = ControlChannel(point, 1), ControlChannel(point, 2)
        for line in (first, second):  # the driver knows both after that
            line.tell({"event": "started"})
        assert {said.get(timeout=TIMEOUT_S)[0], said.get(timeout=TIMEOUT_S)[0]} == {1, 2}
        driver.stop_broker(2)
        eventually(second.stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
        assert not first.stop_asked()
        first.close()
        second.close()


def test_a_broker_that_starts_while_all_are_stopped_is_stopped_too() -> None:
    with server() as (driver, point, _):
        driver.stop_brokers()
        line = ControlChannel(point, 1)
        eventually(line.stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
        line.close()


@pytest.mark.parametrize(
    "hello",
    [
        b'{"token": "right", "broker": 1}\n{"event": "ready"}\n',
        b'{"broker": 1, "nonce": "n", "proof": "00"}\n{"event": "ready"}\n',
        b'{"broker": "1", "nonce": "n", "proof": "00"}\n{"event": "ready"}\n',
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
                with stranger.makefile("rb") as reader:
                    assert b"nonce" in reader.readline()
                    assert reader.read() == b""
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


def test_orders_of_a_false_driver_end_the_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as driver:
        point = ControlPoint("127.0.0.1", driver.getsockname()[1], TOKEN)
        seen: list[bytes] = []

        def answer(order: bytes) -> None:
            end, _ = driver.accept()
            with end, end.makefile("rb") as reader:
                end.sendall(b'{"nonce": "n"}\n')
                seen.append(reader.readline())
                end.sendall(order)
                seen.append(reader.readline())

        for order in (
            b'{"order": "stop"}\n',
            b'{"body": "{\\"order\\": \\"stop\\"}", "code": "00"}\n',
        ):
            thread = Thread(target=answer, args=(order,))
            thread.start()
            line = ControlChannel(point, 1)
            line.tell({"event": "ready"})
            thread.join(TIMEOUT_S)
            assert not line.stop_asked()
            line.close()
        assert TOKEN.encode() not in b"".join(seen)
        assert b"ready" in seen[1]


def test_unknown_orders_are_ignored() -> None:
    with socket.create_server(("127.0.0.1", 0)) as driver:
        point = ControlPoint("127.0.0.1", driver.getsockname()[1], TOKEN)
        made: list[ControlChannel] = []
        thread = Thread(target=lambda: made.append(ControlChannel(point, 1)))
        thread.start()
        end, _ = driver.accept()
        with end, end.makefile("rb") as reader:
            accepted = accept(end, reader, TOKEN)
            assert accepted is not None
            broker, signed = accepted
            assert broker == 1
            thread.join(TIMEOUT_S)
            signed.send({"order": "dance"})
            signed.send({"order": "stop"})
            eventually(made[0].stop_asked, "the order to stop", TIMEOUT_S, every_s=0.01)
    made[0].close()


def test_changed_repeated_and_missing_objects_end_the_line() -> None:
    def lines(*change: int) -> list[dict[str, Any] | None]:
        """Return what the driver reads of three objects that arrive in another order."""
        ours, theirs = socket.socketpair()
        with ours, theirs, ours.makefile("rb") as reader, theirs.makefile("rb") as wire:
            key = b"k" * 32
            sender = SignedLine(theirs, wire, key, "broker")
            for number in range(3):
                sender.send({"n": number})
            texts = [reader.readline() for _ in range(3)]
            theirs.sendall(b"".join(texts[n] for n in change))
            receiver = SignedLine(ours, reader, key, "driver")
            found = []
            for _ in change:
                found.append(receiver.read())
                if found[-1] is None:
                    break
            return found

    assert lines(0, 1, 2) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert lines(0, 0, 1) == [{"n": 0}, None]
    assert lines(0, 2) == [{"n": 0}, None]
    assert lines(1) == [None]
