"""Secrets of the Spark that serves on this machine: its own ports, and Spark Connect's.

Another user of the machine reaches ports on loopback. Without a secret, they could submit code to
the master, an executor or Spark Connect. It would run with the rights of the brokers.

The JVM gets both secrets through its environment and from Python, after it has started. As settings
of its start, they would stand in the list of processes. Spark redacts them in its event log.
"""

from __future__ import annotations

import os
from typing import Final

from sparklog.core.entropy import Entropy, new_nonce
from sparklog.spark.serve.state import Notice

CONNECT_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's own, which clients in Python read, too."""
CONNECT_TOKEN: Final = "spark.connect.authenticate.token"  # noqa: S105 - a name
"""The setting for a JVM that runs already."""


def authenticated_conf(entropy: Entropy) -> dict[str, str]:
    """Return settings with a new secret, for a session of a JVM that runs already.

    Master, workers, driver and executors then prove to each other that they know the secret.
    Workers pass it to their executors through the environment.
    """
    return {"spark.authenticate": "true", "spark.authenticate.secret": new_nonce(entropy)}


def connect_token(entropy: Entropy) -> dict[str, str]:
    """Return the variable with a new token of Spark Connect, or none if the user set one."""
    if os.environ.get(CONNECT_VARIABLE):  # noqa: TID251 - this is the edge
        return {}
    return {CONNECT_VARIABLE: new_nonce(entropy)}


def connect_address(port: int, token: str | None, host: str = "localhost") -> Notice:
    """Return the notice where Spark Connect is reached; the token is the user's own if None."""
    address = f"sc://{host}:{port}" + (f"/;token={token}" if token else "")
    text = f"Spark Connect takes queries at {address}"
    return Notice(text, {"event": "connect", "text": text, "address": address})
