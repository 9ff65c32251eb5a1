"""ShareMember: a member of a share group that sends heartbeats and reads nothing."""

from __future__ import annotations

from typing import Any

from sparklog.client.addresses import BrokerAddress, bootstrap_addresses
from sparklog.client.wire import WireConnection
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request

AGAIN_S = 0.1
TRIES = 200
RETRIED = {14, 15, 16}
"""The coordinator loads, is not available, or is another broker."""


class ShareMember:
    """A member of a share group that only sends heartbeats."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.bootstrap, self.group_id = bootstrap, group_id
        self.member_id = "member-1"
        self.epoch = 0

    def beat(self, epoch: int, *topics: str) -> Any:
        """Send a heartbeat to the coordinator."""
        asked = build_request(
            Api.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics or None,
        )
        for _ in range(TRIES):
            address = self._coordinator()
            if address is not None:
                with WireConnection(address) as connection:
                    answer = connection.call(asked)
                if answer.error_code not in RETRIED:
                    assert answer.error_code == 0, answer
                    self.epoch = answer.member_epoch
                    return answer
            SYSTEM_CLOCK.sleep_s(AGAIN_S)  # a client that is turned away looks again later
        raise AssertionError("no coordinator answers")

    def join(self, *topics: str) -> None:
        """Join, and send heartbeats until there is an assignment."""
        answer = self.beat(0, *topics)
        while answer.assignment is None or not answer.assignment.topic_partitions:
            SYSTEM_CLOCK.sleep_s(AGAIN_S)  # members send heartbeats at intervals
            answer = self.beat(self.epoch)

    def _coordinator(self) -> BrokerAddress | None:
        find = build_request(Api.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=(self.group_id,))
        with WireConnection(bootstrap_addresses(self.bootstrap)[0]) as connection:
            (found,) = connection.call(find).coordinators
        return None if found.error_code != 0 else BrokerAddress(found.host, int(found.port))
