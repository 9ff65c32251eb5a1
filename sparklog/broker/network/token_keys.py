"""The keys by which a listener checks bearer tokens: read at the start, and again when due.

A login never waits for the provider, except for the first keys after the broker's start. Keys stay
in use while the provider does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from sparklog.broker.network.listeners import Endpoint
from sparklog.core.clock import Clock
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.security import setting_in_force
from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.security.sasl.jwks import JwksCache
from sparklog.security.sasl.jwks_source import check_jwks_url, read_jwks
from sparklog.security.sasl.mechanism import SaslServer
from sparklog.security.sasl.oauthbearer import OauthBearerServer, TokenRules

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""The time between two looks whether the keys are due; a token with a new key may make them due."""
FIRST_WITHIN_S: Final = 5.0
"""Longest that a login waits for the first keys."""


class TokenKeys:
    """The keys of one listener."""

    def __init__(self, config: BrokerConfig, listener: Endpoint, clock: Clock) -> None:
        """Read the settings.

        Raises:
            InvalidConfig: there is no address, or no expected audience or issuer.
        """

        def name(setting: str) -> str:
            full = f"sasl.oauthbearer.{setting}"
            return setting_in_force(config, full, listener.name, "OAUTHBEARER")

        self._listener = listener
        self._clock = clock
        self._url = config.text(name("jwks.endpoint.url"))
        if not self._url:
            raise InvalidConfig(
                "OAUTHBEARER needs the keys of the tokens' issuer: set "
                f"sasl.oauthbearer.jwks.endpoint.url. listener={listener.name}"
            )
        check_jwks_url(self._url)
        self._rules = TokenRules(
            frozenset(config.words(name("expected.audience"))),
            config.text(name("expected.issuer")),
            config.whole(name("clock.skew.seconds")) * 1000,
            config.text(name("sub.claim.name")),
            config.text(name("scope.claim.name")),
        )
        for what, found in (("audience", self._rules.audiences), ("issuer", self._rules.issuer)):
            if not found and not config.flag(name(f"allow.unverified.{what}")):
                raise InvalidConfig(
                    f"tokens for others would be accepted: set sasl.oauthbearer.expected.{what}, "
                    f"or sasl.oauthbearer.allow.unverified.{what}=true. listener={listener.name}"
                )
        self._cache = JwksCache(
            config.whole(name("jwks.endpoint.refresh.ms")),
            config.whole(name("jwks.endpoint.retry.backoff.ms")),
            config.whole(name("jwks.endpoint.retry.backoff.max.ms")),
        )
        self._first = asyncio.Event()

    async def run(self) -> None:
        """Read the keys whenever they are due, for ever."""
        while True:
            if self._clock.now_ms() >= self._cache.due_ms:
                await self._load()
            await asyncio.sleep(LOOK_S)

    async def maker(self) -> Callable[[], SaslServer]:
        """Return the maker of an exchange; the first login waits for the keys."""
        if not self._first.is_set():
            try:
                async with asyncio.timeout(FIRST_WITHIN_S):
                    await self._first.wait()
            except TimeoutError:
                logger.warning("no keys of bearer tokens yet listener=%s", self._listener.name)
        return partial(OauthBearerServer, self._cache, self._rules)

    async def _load(self) -> None:
        try:
            document = await asyncio.to_thread(read_jwks, self._url)
            self._cache.loaded(document, self._clock.now_ms())
        except Exception as error:
            # The task must go on: without it, new keys would never be read.
            self._cache.failed(self._clock.now_ms())
            if not isinstance(error, InvalidConfig | Unavailable):
                logger.exception("reading the keys failed")
            logger.warning(
                "the keys of bearer tokens cannot be read, those before stay in use listener=%s %s",
                self._listener.name,
                error,
            )
        else:
            self._first.set()
