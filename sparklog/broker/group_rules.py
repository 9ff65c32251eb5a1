"""What is set for groups, as far as this broker understands it."""

from __future__ import annotations

from sparklog.broker.metadata_access import MetadataAccess
from sparklog.broker.topic_rules import log_left_out
from sparklog.core.config import Config, parse_configs, understood
from sparklog.core.group_configs import GROUP_CONFIGS, NONE_SET


class GroupRules:
    """Tells what is set for a group; what a newer version has stored is left out, and logged."""

    def __init__(self, metadata: MetadataAccess) -> None:
        """Go by the newest `metadata` whenever it is asked."""
        self._metadata = metadata
        self._told: dict[str, list[str]] = {}
        """By group what was logged last: members ask with every heartbeat."""

    def of(self, group_id: str) -> Config:
        """Return what is set for a group."""
        stored = self._metadata.image.group_configs.get(group_id)
        if stored is None:
            self._told.pop(group_id, None)
            return NONE_SET
        known, strange = understood(stored, GROUP_CONFIGS)
        before = self._told.pop(group_id, [])
        if strange:
            self._told[group_id] = strange
            if strange != before:
                log_left_out(f"group={group_id}", strange)
        return parse_configs(known, GROUP_CONFIGS)
