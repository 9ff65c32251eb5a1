"""The login of a listener by Kerberos tickets: its keytab, its service, and the names of users.

The keytab is in `sasl.jaas.config`, as in Kafka. With `principal=*`, or without, each key of the
keytab counts whose service is `sasl.kerberos.service.name`. So brokers of several hosts can have
the same settings and the same keytab.

Source: KIP-12, KIP-85.
"""

from __future__ import annotations

from typing import Final

from sparklog.broker.network.listeners import Endpoint
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.providers import SecretReader
from sparklog.core.config.security import listener_prefix, setting_in_force
from sparklog.core.errors import InvalidConfig
from sparklog.security.jaas import KERBEROS_MODULE, read_jaas
from sparklog.security.kerberos_name import LocalNames
from sparklog.security.sasl.gssapi import GSSAPI, GssapiServer
from sparklog.security.sasl.kerberos import KerberosService

_EXAMPLE: Final = (
    f'{KERBEROS_MODULE} required useKeyTab=true keyTab="/etc/kafka/kafka.keytab" '
    'principal="kafka/HOST@REALM";'
)


class KerberosLogin:
    """The Kerberos service of one listener."""

    def __init__(self, config: BrokerConfig, listener: Endpoint) -> None:
        """Read the settings and the keytab.

        Raises:
            InvalidConfig: a setting is missing or wrong, or the keytab cannot be used.
        """

        def name(setting: str) -> str:
            return setting_in_force(config, setting, listener.name, GSSAPI)

        where = name("sasl.jaas.config")
        options = _options(config.text(where), where, listener)
        service = config.text(name("sasl.kerberos.service.name")) or options.get("serviceName", "")
        if options.get("serviceName", service) != service or not service:
            raise InvalidConfig(
                "GSSAPI needs one service name: set sasl.kerberos.service.name, such as kafka. "
                f"listener={listener.name} serviceName={options.get('serviceName')!r}"
            )
        principal = options.get("principal", "*")
        if principal != "*" and principal.partition("@")[0].partition("/")[0] != service:
            raise InvalidConfig(
                "the broker's principal begins with another service than "
                f"sasl.kerberos.service.name. setting={where} principal={principal} "
                f"sasl.kerberos.service.name={service}"
            )
        rules = config.words(name("sasl.kerberos.principal.to.local.rules"))
        LocalNames(rules, "")  # wrong rules are an error before the library is needed
        self._keys = KerberosService(options["keyTab"], "" if principal == "*" else principal)
        self._names = LocalNames(rules, self._keys.default_realm())
        self._service = service

    def exchange(self) -> GssapiServer:
        """Return the server side of a new exchange."""
        return GssapiServer(self._keys.context(), self._names, self._service)


def _options(text: str, where: str, listener: Endpoint) -> dict[str, str]:
    if not text.strip():
        setting = listener_prefix(listener.name, GSSAPI) + "sasl.jaas.config"
        raise InvalidConfig(f"GSSAPI needs a keytab: set {setting}={_EXAMPLE}")
    options = dict(read_jaas(text, where, KERBEROS_MODULE, GSSAPI, SecretReader().value).options)
    if options.get("useKeyTab", "false").lower() != "true" or not options.get("keyTab"):
        raise InvalidConfig(f"a broker has its key in a keytab; write {_EXAMPLE} setting={where}")
    return options
