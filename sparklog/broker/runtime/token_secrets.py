"""The secrets of delegation tokens, from a broker's settings."""

from __future__ import annotations

from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.providers import SecretReader
from sparklog.security.sasl.delegation_tokens import TokenSecrets

SECRET_KEY = "delegation.token.secret.key"  # noqa: S105 - the name of a setting


def token_secrets_of(config: BrokerConfig) -> TokenSecrets | None:
    """Return what derives the secrets of tokens; None if the brokers have no tokens.

    Raises:
        InvalidConfig: the setting refers to a secret that cannot be read.
    """
    text = config.text(SECRET_KEY)
    key = SecretReader().value(SECRET_KEY, text) if text.startswith("${") else text
    return TokenSecrets(key) if key else None
