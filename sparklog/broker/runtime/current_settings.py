"""SettingsInForce: a broker's present settings, which are those of its start and later changes."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.dynamic_broker import in_force


class SettingsInForce:
    """The settings of one broker. Cheap: computed only when the metadata has new ones."""

    def __init__(self, started: BrokerConfig, metadata: MetadataAccess, broker_id: int) -> None:
        """Combine the settings with which the broker `started` and those in `metadata`."""
        self._started = started
        self._metadata = metadata
        self._name = str(broker_id)
        self._own: Mapping[str, str] = {}
        self._config = started

    @property
    def config(self) -> BrokerConfig:
        """Return the settings in force."""
        own = self._metadata.image.broker_configs.get(self._name, {})
        if own is not self._own:
            self._own, self._config = own, in_force(self._started, own)
        return self._config
