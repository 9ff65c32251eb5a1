"""Credentials of a real STS that expire after seconds, as real ones do after an hour."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3

from tests.harness.moto_server import REGION, MotoServer

ROLE = "arn:aws:iam::123456789012:role/brokers"


class ShortCredentials:
    """Credentials that `credential_process` prints, issued again before they expire.

    STS issues credentials for a quarter of an hour at least, so the time in the file is shorter.
    `has_expired` holds requests to that time.
    """

    def __init__(self, server: MotoServer, folder: Path, lifetime_s: float) -> None:
        """Write nothing yet; `folder` gets the file of credentials and Amazon's config file."""
        self._lifetime_s = lifetime_s
        self._file = folder / "credentials.json"
        self._config = folder / "aws-config"
        self._late = folder / "late"
        self._readings = folder / "readings"
        script = folder / "print-credentials"
        script.write_text(
            f"echo x >> {self._readings}\n"
            f'if [ $(wc -l < {self._readings}) -le "$(cat {self._late})" ]\n'
            f"then cat {self._file}.expired\nelse cat {self._file}\nfi\n"
        )
        self.renew_late(readings=0)
        self._config.write_text(f"[default]\ncredential_process = sh {script}\n")
        self._sts: Any = boto3.client(
            "sts",
            region_name=REGION,
            endpoint_url=server.endpoint_url,
            aws_access_key_id="issuer",
            aws_secret_access_key="issuer",
        )
        self._expiry: dict[str, float] = {}
        self._used: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which Amazon's clients find the credentials."""
        return {"AWS_CONFIG_FILE": str(self._config)}

    @property
    def used(self) -> int:
        """Return how many of the credentials signed a request in time."""
        return len(self._used)

    def has_expired(self, key_id: str) -> bool:
        """Return whether the time of an access key is over, or STS never issued it."""
        if time.time() >= self._expiry.get(key_id, 0.0):
            return True
        self._used.add(key_id)
        return False

    def renew_late(self, readings: int) -> None:
        """Give expired credentials to the next `readings` readers, as a late renewal does."""
        self._late.write_text(str(readings))
        self._readings.write_text("")

    @property
    def late_readings(self) -> int:
        """Return how many of the readers since `renew_late` got expired credentials."""
        done = len(self._readings.read_text().splitlines())
        return min(done, int(self._late.read_text()))

    def __enter__(self) -> ShortCredentials:
        """Issue the first credentials, and go on in a thread."""
        self._issue()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Issue no more."""
        self._ended.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(self._lifetime_s * 0.75):
            self._issue()

    def _issue(self) -> None:
        found = self._sts.assume_role(RoleArn=ROLE, RoleSessionName="broker")["Credentials"]
        expiry_s = time.time() + self._lifetime_s
        self._expiry[found["AccessKeyId"]] = expiry_s
        printed: dict[str, object] = {
            "Version": 1,
            "AccessKeyId": found["AccessKeyId"],
            "SecretAccessKey": found["SecretAccessKey"],
            "SessionToken": found["SessionToken"],
            "Expiration": datetime.fromtimestamp(expiry_s, UTC).isoformat(),
        }
        self._write(self._file, printed)
        expired = datetime.fromtimestamp(time.time() - 1, UTC).isoformat()
        self._write(Path(f"{self._file}.expired"), {**printed, "Expiration": expired})

    def _write(self, file: Path, printed: dict[str, object]) -> None:
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(printed))
        fresh.replace(file)
