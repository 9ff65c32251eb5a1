"""A proxy in front of one broker that knows who is calling, so that pairs can be cut off.

Every connection begins with a request that names its client. A broker's name is `broker-<id>`; the
rest of its client id is ignored. Everyone else is a client, also a caller with TLS, whose name is
not legible. Bytes between two brokers that are cut are held back, both ways. They continue after
`heal`, as packets that TCP sends again. Needs no privileges, unlike network namespaces.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Set as AbstractSet
from contextlib import suppress

NAME_AT = 12
"""Position of the client's name in a frame: after size, API key, version and correlation id."""
CHUNK_BYTES = 1 << 16
CONNECT_S = 2.0
NO_NAME = -1
BROKER = re.compile(r"broker-[0-9]+(?=[ -]|$)")
"""A broker's name; a space and its code, or `-reach-…`, may follow in its client id."""


class WireProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self) -> None:
        """Listen on a free port, and lead nowhere yet."""
        self._target_port: int | None = None
        self._cut: set[str] = set()
        self._refused: set[str] = set()
        self._clients_are_cut = False
        self._callers: dict[socket.socket, str] = {}
        self._seen: set[str] = set()
        self._mended = threading.Condition()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def seen(self) -> AbstractSet[str]:
        """Return the names of all callers so far."""
        with self._mended:
            return frozenset(self._seen)

    def lead_to(self, port: int | None) -> None:
        """Forward connections to another port from now on, or refuse them."""
        self._target_port = port

    def cut(self, *names: str) -> None:
        """Hold back everything to and from these callers."""
        with self._mended:
            self._cut.update(names)

    def cut_clients(self) -> None:
        """Hold back everything to and from every caller that is no broker."""
        with self._mended:
            self._clients_are_cut = True

    def disconnect(self) -> None:
        """Reset every connection; new ones are let through."""
        with self._mended:
            callers = list(self._callers)
        for one in callers:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def refuse(self, *names: str) -> None:
        """Reset every connection of these callers, and each new one."""
        with self._mended:
            self._refused.update(names)
            ended = [one for one, name in self._callers.items() if name in names]
        for one in ended:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Let everything through."""
        with self._mended:
            self._cut.clear()
            self._refused.clear()
            self._clients_are_cut = False
            self._mended.notify_all()

    def close(self) -> None:
        """Take no more connections, and hold nothing back."""
        self._closed = True
        self.heal()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _connected(self) -> socket.socket:
        port = self._target_port
        if port is None:
            raise ConnectionRefusedError
        return socket.create_connection(("127.0.0.1", port), CONNECT_S)

    def _serve(self, caller: socket.socket) -> None:
        """Refuse as the broker does when it is not there; else forward both ways."""
        try:
            broker = self._connected()
        except OSError:
            _reset(caller)
            return
        broker.settimeout(None)
        try:
            first = caller.recv(CHUNK_BYTES)
            name = _name_of(first)
            self._admit(caller, name)
            self._wait(name)
            broker.sendall(first)
        except OSError:
            _reset(caller)
            broker.close()
            return
        back = threading.Thread(target=self._pump, args=(broker, caller, name), daemon=True)
        back.start()
        self._pump(caller, broker, name)

    def _admit(self, caller: socket.socket, name: str) -> None:
        with self._mended:
            self._seen.add(name)
            if name in self._refused:
                raise ConnectionRefusedError
            self._callers[caller] = name

    def _pump(self, source: socket.socket, target: socket.socket, name: str) -> None:
        try:
            while data := source.recv(CHUNK_BYTES):
                self._wait(name)
                target.sendall(data)
        except OSError:
            pass
        self._wait(name)  # the end of the other side is held back, too
        for one in (source, target):
            with self._mended:
                self._callers.pop(one, None)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _wait(self, name: str) -> None:
        with self._mended:
            self._mended.wait_for(lambda: not self._is_cut(name))

    def _is_cut(self, name: str) -> bool:
        is_broker = BROKER.fullmatch(name) is not None
        return name in self._cut or (self._clients_are_cut and not is_broker)


def _name_of(frame: bytes) -> str:
    """Return the client's name in a frame; a first read is long enough to hold it."""
    if len(frame) < NAME_AT + 2:
        return ""
    (size,) = struct.unpack_from(">h", frame, NAME_AT)
    name = b"" if size == NO_NAME else frame[NAME_AT + 2 : NAME_AT + 2 + size]
    client_id = name.decode(errors="replace")
    broker = BROKER.match(client_id)
    return client_id if broker is None else broker[0]


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
