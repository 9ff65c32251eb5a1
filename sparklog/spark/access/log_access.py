"""Log access: the root of the log of a read or a write. An edge: the environment is read here.

One open log per root and process.

Spark reuses its Python workers, so what a log has learnt (topics, manifests, connections) serves
the next task too. A forked child starts afresh: threads and connections do not survive a fork.

The option `kafka.bootstrap.servers` names brokers, of reads and of writes. The options
`kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*` say how to connect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.security import SecuritySettings
from sparklog.client.security_settings import is_security_setting
from sparklog.cluster.log import Log, open_log
from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.store.root_url import parse_root_url, scheme_of

ROOT_VARIABLE: Final = "SPARKLOG_ROOT"
PREFIX: Final = "kafka."
"""Of options that are settings of Kafka's clients."""


def parse_root(path: str | None, purpose: str = "read") -> str:
    """Return the root: the option `path`, or else what the environment says.

    A folder is made absolute, since tasks have working directories of their own, and `s3a://`, as
    Hadoop's client for S3 has it, means `s3://`.

    Raises:
        InvalidConfig: neither says anything, or what they say is not a root.
    """
    root = path if path is not None else os.environ.get(ROOT_VARIABLE)  # noqa: TID251 - the edge
    if root is None or not root.strip():
        raise InvalidConfig(
            f"no log to {purpose}; set the option `path` or the environment variable "
            f"{ROOT_VARIABLE} to its root, for example s3://bucket/prefix (an address of brokers "
            "is not needed and not enough)"
        )
    scheme = scheme_of(root)
    if scheme in ("s3a", "s3n"):
        root, scheme = f"s3{root[len(scheme) :]}", "s3"
    parse_root_url(root)
    # Not `abspath`: it would resolve `link/..` other than the file system does.
    return root if scheme else str(Path(root).absolute())


def refuse_memory(root: str) -> None:
    """Refuse a root that the processes of a Spark application cannot share.

    Raises:
        InvalidConfig: `memory://`.
    """
    if scheme_of(root) == "memory":
        raise InvalidConfig(
            "a log in memory lives in one process, and Spark runs several; use a folder or "
            f"s3://bucket/prefix. root={root}"
        )


_lock = Lock()
_logs: dict[tuple[int, str], Log] = {}


def shared_log(root: str) -> Log:
    """Return this process's log under `root`; never close it.

    Raises:
        InvalidConfig: not a root sparklog knows. Unavailable: the store does not answer.
    """
    key = (os.getpid(), root)
    with _lock:
        log = _logs.get(key)
        if log is None:
            log = _logs[key] = open_log(root)
        return log


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork stays held for ever
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)


def parse_bootstrap(servers: str | None) -> str | None:
    """Return the addresses of brokers, or None: they are found by the log's root.

    Raises:
        InvalidConfig: not such addresses.
    """
    if servers is None or not servers.strip():
        return None
    try:
        bootstrap_addresses(servers)
    except InvalidRequest as error:
        raise InvalidConfig(f"option kafka.bootstrap.servers: {error}") from None
    return servers.strip()


def parse_security_options(given: Mapping[str, str]) -> SecuritySettings | None:
    """Return the options `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*`; None without.

    Options appear in plans and event logs, and are sent to executors, so secrets are references:
    each process reads them itself.

    Raises:
        InvalidConfig: an unknown setting, or a secret in clear text.
    """
    chosen = {
        name: text
        for option, text in given.items()
        if option.startswith(PREFIX) and is_security_setting(name := option.removeprefix(PREFIX))
    }
    if not chosen:
        return None
    security = SecuritySettings(chosen)
    security.check_no_inline_secrets(PREFIX)
    return security
