"""Advertised addresses lead to listeners on every kind of machine: real sockets in real networks.

Each network is a namespace with a name of its own for the host, where the system lets us make one.
Elsewhere a warning says so, and the test runs in this machine's network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("advertise_and_connect.py")
LOOPBACK = "ip link set lo up"
WIFI = """
ip link add wifi0 type veth peer name wifi1
ip link set wifi0 up
ip link set wifi1 up
"""
IPV4 = f"""{LOOPBACK}{WIFI}
ip address add 192.168.77.5/24 dev wifi0
ip route add default via 192.168.77.1"""
IPV6 = f"""{LOOPBACK}{WIFI}
ip -6 address add fd77::5/64 dev wifi0 nodad
ip -6 route add default via fd77::1
for _ in $(seq 600); do
  case "$(ip -6 address show dev wifi0 scope global tentative)$(ip -6 route get fd77::5 2>&1)" in
    "local fd77::5 "*) break ;;
  esac
  sleep 0.1  # a worker of the kernel makes the address usable, on a busy machine later
done"""
UNSHARE = ("unshare", "--net", "--mount", "--uts")
WAYS = (UNSHARE, (*UNSHARE, "--map-root-user"))


def hosts(line: str) -> str:
    """Return commands that name the host `laptop`, and give it this line in /etc/hosts."""
    text = f"127.0.0.1 localhost\\n::1 localhost\\n{line}"
    return (
        f"\nhostname laptop\nprintf '{text}\\n' >$1/hosts\nmount --bind $1/hosts /etc/hosts\n"
        # Without it a name that is in no file would be asked for in a network that has no server.
        "printf 'hosts: files\\n' >$1/nsswitch\nmount --bind $1/nsswitch /etc/nsswitch.conf\n"
    )


def run_in(network: str, folder: Path) -> tuple[list[str], bool]:
    """Return what the program prints there, and whether the network is a namespace."""
    words = [sys.executable, str(PROGRAM)]
    script = f'set -e\n{network}\necho made\nshift\nexec "$@"'
    for way in WAYS:
        if shutil.which(way[0]) is None:
            break
        done = subprocess.run(
            [*way, "bash", "-c", script, "bash", str(folder), *words],
            cwd=PROJECT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        made, _, printed = done.stdout.partition("\n")
        if made == "made":
            assert done.returncode == 0, done.stderr
            return printed.splitlines(), True
    warnings.warn("no network namespace: it runs in this machine's network", stacklevel=2)
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), False


@pytest.mark.parametrize(
    ("network", "own"),
    [
        (IPV4 + hosts("192.168.77.5 laptop"), "192.168.77.5"),
        (IPV4 + hosts("127.0.0.1 laptop"), "192.168.77.5"),
        (IPV4 + hosts("127.0.1.1 laptop"), "192.168.77.5"),
        (IPV4 + hosts(""), "192.168.77.5"),
        (IPV6 + hosts("::1 laptop"), "fd77::5"),
        (LOOPBACK + hosts(""), "127.0.0.1"),
    ],
    ids=[
        "a laptop on Wi-Fi or a container, whose name is its address",
        "a name that resolves to 127.0.0.1",
        "Debian's 127.0.1.1",
        "a name that resolves to nothing",
        "IPv6 only",
        "no network",
    ],
)
def test_advertised_address_reaches_the_listener_in_every_network(
    network: str, own: str, tmp_path: Path
) -> None:
    printed, in_namespace = run_in(network, tmp_path)
    places = dict(line.rsplit(" ", 1) for line in printed)
    assert sorted(places) == ["a cluster", "everywhere on this machine", "this machine"]
    assert places["this machine"] == "127.0.0.1"
    if in_namespace:
        assert places["a cluster"] == places["everywhere on this machine"] == own
