"""Request files: how Spark's Python workers report their requests to the store.

Spark gives a Python data source no way to return counts to the driver. So each process that reads
or writes a log for a query keeps its counts in a file of its own. `FOLDER_VARIABLE` names the
folder; `sparklog serve` with a console sets it for the Spark that it starts on this machine. The
launcher adds the files up for the console's bill. Without the folder, a process leaves usage
reports in the root (`worker_usage`).

Tasks of compaction and other jobs return their requests with their results, so no file has those.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.counters import RequestCount, Snapshot, add_to, from_document, to_document
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidJson
from sparklog.store.root_url import parse_root_url

FOLDER_VARIABLE: Final = "SPARKLOG_REQUESTS_FOLDER"
WRITE_EVERY_S: Final = 0.25
LABELS_MAX: Final = 500
"""A process names this many topics, and counts the requests to the others together."""
FILE_BYTES_MAX: Final = 1 << 20
_SUFFIX: Final = ".json"

RequestsByRoot = Mapping[str, Callable[[], Snapshot]]
"""Root to the reader of its counters in this process."""


def root_key(root: str) -> str:
    """Return one name for all spellings of a root on this machine.

    Raises:
        InvalidConfig: not a root sparklog knows.
    """
    found = parse_root_url(root)
    path = os.path.realpath(found.path) if found.scheme == "file" else found.path.strip("/")
    return f"{found.scheme}://{found.account}/{found.bucket}/{path}"


class RequestFile:
    """The file of this process. Its thread writes it while the counts change."""

    def __init__(self, folder: Path, counters: Callable[[], RequestsByRoot]) -> None:
        """Keep the counts that `counters` returns; `start` begins."""
        self._path = folder / f"{os.getpid()}-{new_nonce(SYSTEM_ENTROPY)}{_SUFFIX}"
        self._counters = counters
        self._written = ""

    def start(self) -> None:
        """Write the file from now on, until the process ends."""
        Thread(target=self._keep, name="sparklog-request-file", daemon=True).start()

    def write(self) -> None:
        """Write the counts if they have changed.

        Raises:
            OSError: the file cannot be written.
        """
        document: dict[str, object] = {}
        for root, requests in self._counters().items():
            document[root_key(root)] = to_document(requests(), LABELS_MAX)
        text = json.dumps(document, separators=(",", ":"))
        if text == self._written:
            return
        draft = self._path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self._path)
        self._written = text

    def _keep(self) -> None:
        tick = Event()
        while not tick.wait(WRITE_EVERY_S):
            try:
                self.write()
            except OSError:
                return  # the folder went with its launcher


class RequestFolder:
    """The files of all processes, for the launcher. Thread-safe."""

    def __init__(self, folder: Path, root: str) -> None:
        """Count the requests to one root.

        Raises:
            InvalidConfig: not a root sparklog knows.
        """
        self._folder = folder
        self._key = root_key(root)
        self._ended: dict[tuple[str, str], RequestCount] = {}
        self._lock = Lock()

    def requests(self) -> Snapshot:
        """Return the counts of all processes so far; files of ended processes are removed."""
        with self._lock:
            total = dict(self._ended)
            for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
                has_ended = not _is_alive(path)  # before the read: it may write until then
                counts = self._read(path)
                add_to(total, counts)
                if has_ended:
                    add_to(self._ended, counts)
                    path.unlink(missing_ok=True)
            return total

    def _read(self, path: Path) -> Snapshot:
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1)
            found = parse_json(text, f"requests of {path.name}", bytes_max=FILE_BYTES_MAX)
        except (OSError, InvalidJson):
            return {}
        own = found.get(self._key) if isinstance(found, dict) else None
        return from_document(own) if isinstance(own, dict) else {}


def _is_alive(path: Path) -> bool:
    """Return whether the process of a file still runs."""
    number = path.name.partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it runs as another user
    return True
