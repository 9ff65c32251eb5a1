"""The cluster's secret: brokers prove that they belong to the cluster; clients have no identity.

The secret is a random number in the metadata log, which brokers read and no client can fetch. A
broker sends a code of it in its client id, made for the address that it calls. So a server that
answers at a stale address learns nothing that is of use at a broker's.

  CLUSTER-SECRET-1: the secret is never sent, logged or answered
  CLUSTER-SECRET-2: a code is of use at one address only
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from hashlib import sha256
from typing import Final

from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.request import BROKERS_CLIENT

_CODES_KEPT: Final = 1024


def client_id(broker_id: int, secret: str, peer: Address) -> str:
    """Return the client id with which a broker calls `peer`."""
    return f"{BROKERS_CLIENT}{broker_id} {_code(secret, peer)}"


def is_broker(sent: str | None, secret: str, own: Address) -> bool:
    """Say whether the client id that came to the address `own` is one of the cluster's brokers."""
    if not sent or not secret or not sent.startswith(BROKERS_CLIENT):
        return False
    _, _, code = sent.rpartition(" ")
    return hmac.compare_digest(code.encode(), _code(secret, own).encode())


@lru_cache(_CODES_KEPT)
def _code(secret: str, at: Address) -> str:
    return hmac.digest(secret.encode(), str(at).encode(), sha256).hex()
