"""Listens and advertises as brokers do by default, and connects to what is advertised."""

from __future__ import annotations

import socket

from sparklog.broker.network.listener_sockets import open_sockets
from sparklog.spark.jobs.addresses import outward_address, place_of

PLACES = (
    ("this machine", "local-cluster[3,2,1024]", None),
    ("everywhere on this machine", "local-cluster[3,2,1024]", "0.0.0.0"),
    ("a cluster", "spark://host:7077", None),
)


def main() -> None:
    """Print a line per place; a connection that fails ends it."""
    for name, master, listen_host in PLACES:
        place = place_of(master, listen_host, None, outward_address)
        listeners = open_sockets(place.listen_host, 0)
        for one in listeners:
            one.listen()
        port = listeners[0].getsockname()[1]
        # On a cluster a broker advertises the address from which it reaches the driver.
        advertised = place.advertised_host or _way_to(outward_address(), port)
        socket.create_connection((advertised, port)).close()
        for one in listeners:
            one.close()
        print(name, advertised)


def _way_to(host: str, port: int) -> str:
    with socket.create_connection((host, port)) as connection:
        return str(connection.getsockname()[0])


if __name__ == "__main__":
    main()
