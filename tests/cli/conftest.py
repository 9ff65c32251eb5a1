from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sparklog.cli.main import main
from sparklog.cluster.log import Log, open_log
from tests.interop.brokers import Brokers


@dataclass(frozen=True)
class Outcome:
    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def documents(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Cli:
    """Calls the command in this process, as the console script does."""

    def __init__(
        self,
        root: str,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[bytes],
        bootstrap: str = "",
    ) -> None:
        self.root = root
        self.bootstrap = bootstrap
        self._monkeypatch = monkeypatch
        self._capture = capture

    def __call__(self, *argv: str, stdin: bytes = b"", root: str | None = None) -> Outcome:
        self._monkeypatch.setenv("SPARKLOG_ROOT", self.root if root is None else root)
        self._monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", self.bootstrap)
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        code = main(argv)
        output, errors = self._capture.readouterr()
        return Outcome(code, output, errors.decode())

    def ok(self, *argv: str, stdin: bytes = b"") -> Outcome:
        outcome = self(*argv, stdin=stdin)
        assert outcome.code == 0, outcome.errors
        return outcome

    def fails(self, *argv: str, stdin: bytes = b"", root: str | None = None) -> str:
        """Return the one line that says why a command failed."""
        outcome = self(*argv, stdin=stdin, root=root)
        assert outcome.code == 1
        return _one_line(outcome)

    def misused(self, *argv: str, root: str | None = None) -> str:
        """Return the one line that says what is wrong with a call."""
        outcome = self(*argv, root=root)
        assert outcome.code == 2
        assert outcome.output == b""
        return _one_line(outcome)


def _one_line(outcome: Outcome) -> str:
    *before, line = outcome.errors.splitlines()
    assert line.startswith("error: ")
    assert not any("Traceback" in text for text in before)
    return line


@pytest.fixture(params=["file", "memory"])
def cli(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Cli:
    root = str(tmp_path / "root") if request.param == "file" else f"memory://{uuid4().hex}"
    return Cli(root, monkeypatch, capsysbinary)


@pytest.fixture(scope="package")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers for all tests that go over the wire: topics have names of their own."""
    with Brokers(str(tmp_path_factory.mktemp("root")), count=3) as serving:
        yield serving


@pytest.fixture
def wire_cli(
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Cli:
    """The command over the wire."""
    return Cli("", monkeypatch, capsysbinary, brokers.bootstrap)


@pytest.fixture
def file_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(str(tmp_path / "root"), monkeypatch, capsysbinary)


@pytest.fixture
def log(file_cli: Cli) -> Iterator[Log]:
    with open_log(file_cli.root) as opened:
        yield opened
