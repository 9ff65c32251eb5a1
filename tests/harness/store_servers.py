"""Servers of object stores that others wrote: versitygw, Azurite, fake-gcs-server.

The first use installs a server into the virtual environment, by Go's or Node's own installer. Go
keeps what it compiled, so only the first of all environments of a machine takes a minute. `make
test` starts versitygw, and moto on a machine without Go. Only tests that are marked `soak` start
the others.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from http.client import HTTPConnection
from pathlib import Path

from azure.storage.blob import ContainerClient

from tests.harness.moto_server import REGION, moto_server
from tests.harness.waiting import eventually

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE = "azurite@3.37.0"
KEEP_ALIVE = "--keep-alive"
"""An option of versitygw: connections stay open between requests, as those to S3 do. Without it the
server closes each connection after one response.
"""
S3_KEY, S3_SECRET = "test", "test-secret"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Azurite's own account and key, which its documentation names."""
KINDS = [
    *(["versitygw", "gcs"] if shutil.which("go") else []),
    *(["azure"] if shutil.which("npm") else []),
]
"""The servers that this machine can install."""
S3_SERVER = "versitygw" if "versitygw" in KINDS else "moto"
"""The server that `s3_server` starts. Tests have it in their names."""
PROGRAMS = Path(sys.prefix) / "store-servers"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def go_program(module: str) -> Path:
    """Return a program of Go; the first use builds it."""
    program = PROGRAMS / module.rpartition("/")[2].partition("@")[0]
    PROGRAMS.mkdir(exist_ok=True)
    with (PROGRAMS / "lock").open("w") as lock:
        flock(lock, LOCK_EX)  # workers of one run need it at the same time
        if not program.exists():
            environment = {**os.environ, "GOBIN": str(PROGRAMS)}
            subprocess.run(["go", "install", module], env=environment, check=True)
    return program


def node_program(package: str, name: str) -> Path:
    """Return a program of a Node package; the first use installs it."""
    program = PROGRAMS / "node_modules" / ".bin" / name
    if not program.exists():
        command = ["npm", "install", "--silent", "--prefix", str(PROGRAMS), package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return program


@contextmanager
def served(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    """Run a server until the end; it answers when this returns."""

    def answers() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        except ConnectionResetError:
            return True  # it listens, and speaks TLS
        except OSError:
            return False
        finally:
            connection.close()

    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(answers, "the server answers")
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def versitygw(folder: Path, bucket: str, *options: str) -> Iterator[int]:
    """Serve S3 from a folder by versitygw, with one bucket; yields the port."""
    program = go_program(VERSITYGW)
    (folder / bucket).mkdir(parents=True)
    port = free_port()
    command = [str(program), "--port", f"127.0.0.1:{port}", *options, "posix", str(folder)]
    with served(command, port, {"ROOT_ACCESS_KEY": S3_KEY, "ROOT_SECRET_KEY": S3_SECRET}):
        yield port


@dataclass(frozen=True)
class S3Server:
    """An S3 server that runs here."""

    port: int

    def environment(self, endpoint_url: str | None = None) -> dict[str, str]:
        """Return the variables that lead clients here, or to a proxy in front."""
        return s3_environment(self.port, endpoint_url)


@contextmanager
def s3_server(folder: Path, bucket: str, *options: str) -> Iterator[S3Server]:
    """Serve S3 by `S3_SERVER`, with one bucket; versitygw keeps the objects in `folder`.

    `options`: of versitygw.
    """
    if S3_SERVER == "versitygw":
        with versitygw(folder, bucket, *options) as port:
            yield S3Server(port)
    else:
        with moto_server() as moto:
            moto.make_bucket(bucket)
            yield S3Server(moto.port)


def s3_environment(port: int, endpoint_url: str | None = None) -> dict[str, str]:
    """Return the variables that lead clients to an S3 server, or to a proxy in front."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url or f"http://127.0.0.1:{port}",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": S3_KEY,
        "AWS_SECRET_ACCESS_KEY": S3_SECRET,
    }


@contextmanager
def azurite(container: str) -> Iterator[int]:
    """Serve Azure Blob Storage by Azurite, with one container; yields the port."""
    port = free_port()
    program = node_program(AZURITE, "azurite-blob")
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with served([str(program), "--blobPort", str(port), *options], port, {}):
        endpoint = azure_environment(port)["AZURE_STORAGE_SERVICE_ENDPOINT"]
        with ContainerClient(endpoint, container, credential=AZURE_KEY) as client:
            client.create_container()
        yield port


def azure_environment(port: int) -> dict[str, str]:
    """Return the variables that lead clients to Azurite, or to a proxy in front."""
    return {
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
        "AZURE_STORAGE_KEY": AZURE_KEY,
    }


@contextmanager
def fake_gcs(bucket: str) -> Iterator[int]:
    """Serve Google Cloud Storage by fake-gcs-server, with one bucket; yields the port."""
    port = free_port()
    place = ["-host", "127.0.0.1", "-port", str(port), "-scheme", "http", "-backend", "memory"]
    with served([str(go_program(FAKE_GCS)), *place], port, {}):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/storage/v1/b?project=test", f'{{"name": "{bucket}"}}')
        assert connection.getresponse().status == 200
        connection.close()
        yield port


def gcs_environment(port: int) -> dict[str, str]:
    """Return the variable that leads clients to fake-gcs-server, or to a proxy in front."""
    return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}
