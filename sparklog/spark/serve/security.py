"""Options of `serve` for TLS, logins and further listeners, turned into the brokers' settings.

Files stay where they are: each broker reads them on its own machine, under the same path. No
option takes a password; a setting refers to a file with it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparklog.broker.network.listeners import PORT_MAX
from sparklog.core.errors import InvalidRequest
from sparklog.security.protocol import SecurityProtocol
from sparklog.spark.serve.broker_plan import MoreListener

_MECHANISMS: Final = {
    "scram": "SCRAM-SHA-256,SCRAM-SHA-512",
    "plain": "PLAIN",
    "oauthbearer": "OAUTHBEARER",
    "gssapi": "GSSAPI",
}
_LISTENER: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9_]*)=([A-Z_]+)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\],@]*):([0-9]{1,5})"
    r"(?:@(\[[0-9A-Fa-f:.]+\]|[^:/\[\],@]+))?"
)


@dataclass(frozen=True, slots=True)
class ServeSecurity:
    """The parts of a job that come from the options of this module."""

    protocol: str
    """Security protocol of the listener at `--port`."""
    more_listeners: tuple[MoreListener, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


def add_security_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("security")
    group.add_argument(
        "--tls-cert", type=Path, metavar="FILE",
        help="encrypt connections: PEM with the brokers' certificate chain, and their key unless "
        "--tls-key has it",
    )  # fmt: skip
    group.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="PEM with the private key of --tls-cert"
    )
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE",
        help="PEM with the authorities that signed the brokers' and the clients' certificates",
    )  # fmt: skip
    group.add_argument(
        "--sasl", choices=tuple(_MECHANISMS), action="append", default=[],
        help="have clients log in; may be given more than once (`sparklog users` adds users)",
    )  # fmt: skip
    group.add_argument(
        "--protocol", choices=tuple(SecurityProtocol),
        help="of the listener at --port, which brokers use among themselves (default: as "
        "--tls-cert and --sasl say)",
    )  # fmt: skip
    group.add_argument(
        "--listener", action="append", default=[], metavar="NAME=PROTOCOL://HOST:PORT[@ADVERTISED]",
        help="a further listener, such as EXTERNAL=SASL_SSL://0.0.0.0:9192@kafka.example; ports "
        "count on as --port does; may be given more than once",
    )  # fmt: skip


def serve_security(given: argparse.Namespace, configs: Mapping[str, str]) -> ServeSecurity:
    """Return what parsed options mean; `configs` are the settings that `--config` gives.

    Raises:
        InvalidRequest: options that do not go together, or a file that is not there.
    """
    made: dict[str, str] = {**_tls(given), **_sasl(given)}
    twice = sorted(made.keys() & configs.keys())
    if twice:
        raise InvalidRequest(f"--config {twice[0]} is set by another option as well: use one")
    has_tls = given.tls_cert is not None or any("ssl.keystore" in name for name in configs)
    has_sasl = bool(given.sasl) or any("sasl.enabled.mechanisms" in name for name in configs)
    more = tuple(map(_listener, given.listener))
    protocol = given.protocol or _protocol(has_tls=has_tls, has_sasl=has_sasl)
    names = [protocol, *(one.name for one in more)]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"--listener has a name twice: {','.join(names)}")
    protocols = [SecurityProtocol[protocol], *(SecurityProtocol[one.protocol] for one in more)]
    if any(one.tls for one in protocols) and not has_tls:
        raise InvalidRequest("a listener with TLS needs a certificate: give --tls-cert")
    if given.tls_cert is not None and not any(one.tls for one in protocols):
        raise InvalidRequest("--tls-cert has no effect without a listener with SSL or SASL_SSL")
    return ServeSecurity(protocol, more, made)


def _protocol(*, has_tls: bool, has_sasl: bool) -> str:
    return ("SASL_" if has_sasl else "") + ("SSL" if has_tls else "PLAINTEXT")


def _tls(given: argparse.Namespace) -> dict[str, str]:
    if given.tls_cert is None:
        if given.tls_key is not None:
            raise InvalidRequest("--tls-key needs --tls-cert")
        return {}
    made = {}
    certificate = _file("--tls-cert", given.tls_cert)
    if given.tls_key is None:
        made["ssl.keystore.location"] = str(certificate)
    else:
        made["ssl.keystore.certificate.chain"] = _reference("--tls-cert", certificate)
        made["ssl.keystore.key"] = _reference("--tls-key", _file("--tls-key", given.tls_key))
    if given.tls_ca is not None:
        made["ssl.truststore.location"] = str(_file("--tls-ca", given.tls_ca))
    return made


def _sasl(given: argparse.Namespace) -> dict[str, str]:
    if not given.sasl:
        return {}
    return {"sasl.enabled.mechanisms": ",".join(_MECHANISMS[one] for one in given.sasl)}


def _file(option: str, path: Path) -> Path:
    found = path.absolute()
    if not found.is_file():
        raise InvalidRequest(f"{option} {path}: there is no such file")
    return found


def _reference(option: str, path: Path) -> str:
    if set("{}:$") & set(str(path)):
        raise InvalidRequest(f"{option} {path}: a path must not have braces, colons or dollars")
    return f"${{dir:{path.parent}:{path.name}}}"


def _listener(text: str) -> MoreListener:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[4]) > PORT_MAX or match[2] not in SecurityProtocol.__members__:
        raise InvalidRequest(
            "--listener takes NAME=PROTOCOL://HOST:PORT[@ADVERTISED], PROTOCOL one of "
            f"{', '.join(SecurityProtocol)}: {text!r}"
        )
    name, protocol, host, port, advertised = match.groups()
    return MoreListener(
        name.upper(), protocol, host.strip("[]"), int(port), (advertised or "").strip("[]")
    )
