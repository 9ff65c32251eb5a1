"""The line between the driver and its brokers: signed JSON objects, one per line, over TCP.

A broker's task calls the driver as it starts, says who it is, and reports; the driver says `stop`
when the broker is to drain. Spark itself would report nothing before the task ends. The line is a
convenience. A broker without one serves, and one whose line breaks goes on serving, because its
executor ends with the driver anyway.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from itertools import count
from threading import Event, Lock, Thread
from typing import Any

from sparklog.broker.network.listener_sockets import open_sockets
from sparklog.spark.jobs.addresses import outward_address
from sparklog.spark.serve.broker_plan import ControlPoint
from sparklog.spark.serve.signed_line import SignedLine, accept, call

CONNECT_TIMEOUT_S = 5.0
HELLO_TIMEOUT_S = 10.0
STOP = "stop"

Report = Callable[[int, Mapping[str, Any]], None]
"""Takes a broker's id and what it says; `{"event": "hung up"}` when its line breaks. All that comes
over one line has the same number under `line`."""


class ControlServer:
    """The driver's end."""

    def __init__(self, report: Report, token: str) -> None:
        """Pass what brokers say to `report`, which is called from several threads."""
        self._report = report
        self._token = token
        self._listener: socket.socket | None = None
        self._lines: dict[socket.socket, tuple[int, SignedLine]] = {}
        self._numbers = count(1)
        self._lock = Lock()
        self._stopping = False

    def start(self, bind_host: str, port: int = 0) -> int:
        """Listen at a host, on every interface if it is empty, and return the port.

        Raises:
            OSError: the address cannot be had.
        """
        listener = open_sockets(bind_host, port)[0]
        listener.setblocking(True)  # a thread waits in accept
        listener.listen()
        self._listener = listener
        Thread(target=self._accept, args=(listener,), name="control-accept", daemon=True).start()
        bound: int = listener.getsockname()[1]
        return bound

    def stop_brokers(self) -> None:
        """Ask every broker to drain, those that are only starting too."""
        with self._lock:
            self._stopping = True
            for _, signed in self._lines.values():
                signed.send({"order": STOP})

    def stop_broker(self, broker_id: int) -> None:
        """Ask the processes of one broker to drain that have called by now."""
        with self._lock:
            for broker, signed in self._lines.values():
                if broker == broker_id:
                    signed.send({"order": STOP})

    def close(self) -> None:
        """Listen no more, and hang up."""
        if self._listener is not None:
            # Closing alone does not wake the thread that waits in accept.
            _shut(self._listener)
        with self._lock:
            lines, self._lines = self._lines, {}
        for line in lines:
            _shut(line)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return  # closed
            Thread(target=self._listen, args=(line,), name="control-line", daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as reader:
            line.settimeout(HELLO_TIMEOUT_S)
            accepted = accept(line, reader, self._token)
            if accepted is None:
                return  # not one of our brokers
            broker, signed = accepted
            line.settimeout(None)
            with self._lock:
                number = next(self._numbers)
                self._lines[line] = accepted
                if self._stopping:
                    signed.send({"order": STOP})
            while (said := signed.read()) is not None:
                self._report(broker, {**said, "line": number})
            with self._lock:
                self._lines.pop(line, None)
            self._report(broker, {"event": "hung up", "line": number})


class ControlChannel:
    """A broker's end."""

    def __init__(self, point: ControlPoint, broker_id: int) -> None:
        """Call the driver; without an answer the broker is on its own."""
        self._stop = Event()
        self._line: socket.socket | None = None
        self._signed: SignedLine | None = None
        try:
            self._line = socket.create_connection((point.host, point.port), CONNECT_TIMEOUT_S)
        except OSError as error:
            say(f"the driver was not reached, going on without it. error={error}")
            return
        self._line.settimeout(HELLO_TIMEOUT_S)
        reader = self._line.makefile("rb")
        self._signed = call(self._line, reader, point.token, broker_id)
        if self._signed is None:
            say("the driver did not answer as one, going on without it.")
            return
        self._line.settimeout(None)
        Thread(target=self._listen, args=(self._signed,), name="control-line", daemon=True).start()

    @property
    def own_host(self) -> str:
        """Return the address of this machine by which others reach it, as well as it is known."""
        if self._line is None:
            return outward_address()
        host: str = self._line.getsockname()[0]
        return host

    def stop_asked(self) -> bool:
        """Return whether the driver wants the broker to drain."""
        return self._stop.is_set()

    def tell(self, said: Mapping[str, Any]) -> None:
        """Report something to the driver; silence is no error."""
        if self._signed is not None:
            self._signed.send(said)

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            _shut(self._line)

    def _listen(self, signed: SignedLine) -> None:
        while (said := signed.read()) is not None:
            if said.get("order") == STOP:
                self._stop.set()


def say(message: str) -> None:
    """Write a line to the executor's log."""
    print(f"sparklog broker: {message}", file=sys.stderr, flush=True)


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # never connected, or gone
    line.close()
