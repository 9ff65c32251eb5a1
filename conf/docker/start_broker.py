"""Starts one broker in a container: its id and address from its pod, its rack from its node.

All variables but SPARKLOG_ROOT are optional. The rest of the command line goes to the broker.

- SPARKLOG_ROOT: the root of the log, such as s3://bucket/log.
- SPARKLOG_BROKER_ID: the id. Without it the number at the end of POD_NAME counts from the next.
- SPARKLOG_FIRST_BROKER_ID: the id of pod 0, 1 by default.
- SPARKLOG_ADVERTISED_HOST: the host for clients. Without it POD_NAME.SPARKLOG_SERVICE.
- SPARKLOG_ZONE_OF_NODE: if true, the zone of NODE_NAME is the rack. The account must get nodes.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ZONE = "topology.kubernetes.io/zone"
TIMEOUT_S = 10.0


def command(variables: Mapping[str, str], more: Sequence[str], rack: str | None) -> list[str]:
    """Return the words that start the broker.

    Raises:
        SystemExit: a variable is missing or wrong; the message names it.
    """
    root = variables.get("SPARKLOG_ROOT", "")
    if not root:
        raise SystemExit("start_broker: SPARKLOG_ROOT is missing: s3://bucket/log")
    broker_id = variables.get("SPARKLOG_BROKER_ID") or id_of_pod(variables)
    words = [sys.executable, "-m", "sparklog.broker.main", "--root", root]
    words += ["--broker-id", broker_id, "--listener", "0.0.0.0:9092"]
    settings = {"metrics.port": "9404"}
    host = variables.get("SPARKLOG_ADVERTISED_HOST") or host_of_pod(variables)
    if host:
        settings["advertised.listeners"] = f"PLAINTEXT://{host}:9092"
    if rack:
        settings["broker.rack"] = rack
    for name, value in settings.items():
        words += ["--config", f"{name}={value}"]
    return [*words, *more]


def id_of_pod(variables: Mapping[str, str]) -> str:
    """Return the id of a StatefulSet's pod: `log-0` is the first broker."""
    number = variables.get("POD_NAME", "").rpartition("-")[2]
    first = variables.get("SPARKLOG_FIRST_BROKER_ID", "1")
    if not (number.isascii() and number.isdigit() and first.isascii() and first.isdigit()):
        raise SystemExit(
            "start_broker: SPARKLOG_BROKER_ID is missing, or POD_NAME ends in no number"
        )
    return str(int(first) + int(number))


def host_of_pod(variables: Mapping[str, str]) -> str:
    """Return the name of a pod in its headless service; empty outside of Kubernetes."""
    pod, service = variables.get("POD_NAME", ""), variables.get("SPARKLOG_SERVICE", "")
    return f"{pod}.{service}" if pod and service else ""


def zone_of(node: str, api: str, account: Path = ACCOUNT) -> str | None:
    """Return the zone of a node, None if it has none; `api` is the address of Kubernetes' API.

    Raises:
        OSError: the API does not answer, or does not let this account read nodes.
    """
    token = (account / "token").read_text()
    asked = urllib.request.Request(  # noqa: S310 - the scheme is the cluster's own
        f"{api}/api/v1/nodes/{quote(node, safe='')}", headers={"Authorization": f"Bearer {token}"}
    )
    certificates = account / "ca.crt"
    context = ssl.create_default_context(cafile=certificates) if certificates.exists() else None
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310
        labels = json.load(answer)["metadata"].get("labels", {})
    zone = labels.get(ZONE)
    return None if zone is None else str(zone)


def main() -> None:
    """Become the broker."""
    variables = dict(os.environ)  # noqa: TID251 - this is the edge
    rack = variables.get("SPARKLOG_RACK")
    if variables.get("SPARKLOG_ZONE_OF_NODE") == "true":
        rack = zone_of(variables["NODE_NAME"], "https://kubernetes.default.svc") or rack
    words = command(variables, sys.argv[1:], rack)
    os.execv(words[0], words)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
