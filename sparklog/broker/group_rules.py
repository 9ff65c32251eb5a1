"""What is set for groups, as far as this broker understands it."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.broker.metadata_access import MetadataAccess
from sparklog.broker.topic_rules import log_left_out
from sparklog.core.config import Config, parse_configs, understood
from sparklog.core.group_configs import GROUP_CONFIGS, NONE_SET


class GroupRules:
    """Tells what is set for a group; what a newer version has stored is left out, and logged."""

    def __init__(self, metadata: MetadataAccess) -> None:
        """Go by the newest `metadata` whenever it is asked."""
        self._metadata = metadata
        self._known: dict[str, tuple[Mapping[str, str], Config]] = {}
        """By group what was stored, and what of it is understood: members ask at each heartbeat."""

    def of(self, group_id: str) -> Config:
        """Return what is set for a group."""
        stored = self._metadata.image.group_configs.get(group_id)
        if stored is None:
            self._known.pop(group_id, None)
            return NONE_SET
        before = self._known.get(group_id)
        if before is not None and before[0] == stored:
            return before[1]
        known, strange = understood(stored, GROUP_CONFIGS)
        if strange:
            log_left_out(f"group={group_id}", strange)
        config = parse_configs(known, GROUP_CONFIGS)
        self._known[group_id] = stored, config
        return config
