"""Options that name a log and how to connect to it. An edge: the environment is read here.

`path` names the log's root. The option `kafka.bootstrap.servers` names brokers, of reads and of
writes. The options `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*` say how to connect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.security import SecuritySettings
from sparklog.client.security_settings import is_security_setting
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
