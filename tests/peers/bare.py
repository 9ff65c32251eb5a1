"""Commands as a user types them: nothing set but PATH and HOME, on a machine with a network.

The network is a namespace with loopback and one more interface, where the system permits one (as
root, or by user namespaces). Elsewhere it is this machine's own. Nothing leaves it either way.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.peers.guard import die_with_parent

DEADLINE_S = 400.0
END_TIMEOUT_S = 60.0
ADDRESS = "192.168.77.5"
_WAYS = (
    (("unshare", "--net"), ("--net",)),
    (("unshare", "--map-root-user", "--net"), ("--user", "--preserve-credentials", "--net")),
)
"""Commands that make a namespace, and that enter it."""
_SET_UP = f"""
set -e
ip link set lo up
ip link add wifi0 type veth peer name wifi1
ip address add {ADDRESS}/24 dev wifi0
ip link set wifi0 up
ip link set wifi1 up
ip route add default via 192.168.77.1
echo ready
exec cat
"""


class BareShell:
    """Runs commands in one network."""

    def __init__(self, home: Path, programs: Path, enter: tuple[str, ...]) -> None:
        """Run them with `home` as HOME, `programs` first on PATH; `enter` goes before each."""
        java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{_path()}")
        assert java is not None, "Spark needs Java"
        folders = (programs, Path(java).parent, "/usr/local/bin:/usr/bin:/bin")
        self.environment = {"PATH": ":".join(map(str, folders)), "HOME": str(home)}
        self._enter = enter

    @property
    def has_own_network(self) -> bool:
        """Return whether the network is a namespace."""
        return bool(self._enter)

    def run(self, command: str, folder: Path) -> str:
        """Return what a command prints; it must end well."""
        done = subprocess.run(
            [*self._enter, "bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, command: str, folder: Path) -> Iterator[Running]:
        """Run a command until it ends, or until the block does."""
        process = subprocess.Popen(
            [*self._enter, "bash", "-c", f"exec {command}"],
            cwd=folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # It would outlive a test run that is killed.
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509
            start_new_session=True,
        )
        try:
            yield Running(process)
        finally:
            if process.poll() is None:  # in good order, or Spark leaves folders behind
                os.killpg(process.pid, signal.SIGTERM)
            assert process.stdout is not None
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_TIMEOUT_S)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()


class Running:
    """A command that runs, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Read what `process` prints."""
        self._process = process
        self.lines: list[str] = []

    def until(self, part: str) -> str:
        """Return the next line that has this part."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            if part in line:
                return self.lines[-1]
        raise AssertionError(f"it ended without {part!r}:\n" + "\n".join(self.lines[-40:]))

    def end(self, number: signal.Signals) -> int:
        """Send a signal; returns the exit code when it has ended."""
        assert self._process.stdout is not None
        self._process.send_signal(number)
        self.lines += [line.rstrip() for line in self._process.stdout]
        return self._process.wait(DEADLINE_S)


@contextmanager
def bare_shell(home: Path, programs: Path | None = None) -> Iterator[BareShell]:
    """Yield a shell, in a network of its own if that can be had; a warning says if not.

    Args:
        home: HOME, made here.
        programs: the folder of sparklog's command; by default that of this interpreter.
    """
    programs = programs or Path(sys.executable).parent
    home.mkdir()
    for make, enter in _WAYS:
        if shutil.which("nsenter") is None or shutil.which(make[0]) is None:
            break
        with subprocess.Popen(
            [*make, "bash", "-c", _SET_UP],
            env={"PATH": _path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),  # noqa: PLW1509
        ) as holder:
            assert holder.stdout is not None
            if holder.stdout.readline() == b"ready\n":
                try:
                    yield BareShell(
                        home, programs, ("nsenter", "--target", str(holder.pid), *enter, "--")
                    )
                finally:
                    holder.kill()
                return
    warnings.warn("no network namespace: commands run in this machine's network", stacklevel=3)
    yield BareShell(home, programs, ())


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin"
