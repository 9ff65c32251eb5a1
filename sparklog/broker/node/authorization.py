"""The authorizer that a broker's settings and the newest ACLs make."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.security.acls import AclBinding
from sparklog.security.authorizer import Authorizer
from sparklog.security.principal import Principal, parse_principal


def super_users_of(config: BrokerConfig) -> frozenset[Principal]:
    """Return the principals in `super.users`, which semicolons separate.

    Raises:
        InvalidConfig: one has another form than User:name.
    """
    texts = (text.strip() for text in config.text("super.users").split(";"))
    try:
        return frozenset(parse_principal(text) for text in texts if text)
    except InvalidRequest as error:
        raise InvalidConfig(f"super.users takes User:a;User:b. {error}") from error


class Authorization:
    """Keeps one authorizer for each list of ACLs. Of one event loop only."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the settings.

        Raises:
            InvalidConfig: a super user has no principal's form.
        """
        self._is_on = bool(config.text("authorizer.class.name"))
        self._super_users = super_users_of(config)
        self._allow_if_no_acl = config.flag("allow.everyone.if.no.acl.found")
        self._acls: Mapping[str, AclBinding] = {}
        self._authorizer = self._made()

    def current(self, image: MetadataImage) -> Authorizer | None:
        """Return the authorizer of an image; None while the broker has no authorizer."""
        if not self._is_on:
            return None
        if image.acls is not self._acls:
            self._acls = image.acls
            self._authorizer = self._made()
        return self._authorizer

    def _made(self) -> Authorizer:
        return Authorizer(
            self._acls.values(), self._super_users, allow_if_no_acl=self._allow_if_no_acl
        )
