"""Classic groups: one owner per partition and no request unanswered, in every order of events.

Clients are modelled as they behave: a request at a time, and after a lost or refused one they begin
again. A generation's leader gives every member a part that names member and generation.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)
from kio.schema.errors import ErrorCode

from sparklog.coordinator.effects import Token
from sparklog.coordinator.messages import JoinResult, MemberIdentity, SyncResult
from tests.harness.coordinator_settings import group_settings
from tests.harness.group_driver import GROUP, REBALANCE_MS, SESSION_MS, Driver, offset_of

NEVER_MS = 10**12
SETTLE_MS = 5 * REBALANCE_MS + 400_000
"""Longer than everything that anybody may wait for: rebalances, and a new member's five minutes."""


@dataclass
class Client:
    """A consumer: its state, its assignment, and the answers it waits for."""

    name: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] | None = None
    """Members to give parts to, when it leads."""
    joining: Token | None = None
    syncing: Token | None = None
    part: bytes | None = None
    """Its assignment in this generation."""
    ids: int = 0

    def forget(self) -> None:
        """Begin again, as after an error."""
        self.member_id, self.generation = "", -1
        self.leads = self.part = self.joining = self.syncing = None

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.instance)


class Groups(RuleBasedStateMachine):
    """See the module."""

    clients = Bundle("clients")

    @initialize()
    def begin(self) -> None:
        quick = group_settings(
            group_initial_rebalance_delay_ms=1_000,
            group_max_size=4,
            offsets_retention_check_interval_ms=NEVER_MS,  # an empty group would be forgotten
        )
        self.driver = Driver(quick)
        self.known: list[Client] = []
        self.instances: dict[str, str | None] = {}
        """Instance ids by the names that member ids begin with."""
        self.started = 0
        self.parts: dict[tuple[int, str], bytes] = {}
        """Each member's assignment in each generation."""
        self.leaders: dict[tuple[int, int], str] = {}
        self.coordinators = 0
        """A generation without an assignment is forgotten by a new coordinator, and comes again."""
        self.generation = 0
        self.committed: int | None = None

    @rule(target=clients, is_static=st.booleans())
    def start(self, is_static: bool) -> Client:
        self.started += 1
        name = f"c{self.started}"
        self.instances[name] = f"i{self.started % 2}" if is_static else None
        self.known.append(Client(name, self.instances[name]))
        return self.known[-1]

    @rule(client=clients, other=st.booleans())
    def join(self, client: Client, other: bool) -> None:
        """Join, perhaps again, perhaps with other interests, perhaps while one waits."""
        if client.syncing is None:
            self.join_with(client, b"other" if other else b"same")

    def join_with(self, client: Client, metadata: bytes) -> None:
        client.ids += 1
        before, client.part = client.joining, None
        client.joining = self.driver.join(
            client.member_id,
            new=f"{client.name}-{client.ids}",
            instance=client.instance,
            protocols=(("range", metadata), ("sticky", b"")),
        )
        if before is not None and client.member_id:
            assert before in self.driver.replies, "an older join of the same member is answered"
        self.hear_all()

    @rule(rounds=st.integers(1, 8))
    def live(self, rounds: int) -> None:
        """Let all do what consumers do next, and time pass."""
        for _ in range(rounds):
            for client in self.known:
                self.act(client)
            self.driver.wait(300)
            self.hear_all()

    def act(self, client: Client) -> None:
        if client.joining is not None or client.syncing is not None:
            return
        if client.generation < 0:
            self.join_with(client, b"same")
        elif client.part is None:
            self.sync(client)
        else:
            self.heartbeat(client)

    def sync(self, client: Client) -> None:
        assigned = {m: f"{m} in {client.generation}".encode() for m in client.leads or ()}
        client.syncing = self.driver.sync(
            client.member_id, client.generation, assigned, member=client.identity
        )
        self.hear_all()

    def heartbeat(self, client: Client) -> None:
        code = self.driver.heartbeat(client.member_id, client.generation, client.instance)
        if code is ErrorCode.none:
            assert client.generation == self.generation, "an older generation is refused"
            if client.instance is None:
                assert client.member_id in {m.member_id for m in self.driver.describe().members}
        elif code is ErrorCode.rebalance_in_progress:
            self.join_with(client, b"same")
        else:
            client.forget()

    @rule(client=clients, offset=st.integers(0, 100))
    def commit(self, client: Client, offset: int) -> None:
        if client.generation < 0 or client.part is None:
            return
        (code,) = self.driver.commit(
            offset_of("t", offset), member=client.identity, generation=client.generation
        )
        if code is ErrorCode.none:
            assert client.generation == self.generation, "an older generation is refused"
            self.committed = offset

    @rule(client=consumes(clients))
    def crash(self, client: Client) -> None:
        """Stop sending. Another process may start with its instance id."""
        self.known.remove(client)

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        if client.joining is None and client.syncing is None and client.member_id:
            self.driver.leave(client.identity)
            client.forget()

    @rule(span_ms=st.sampled_from([1, 500, 1_500, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, span_ms: int) -> None:
        self.driver.wait(span_ms)
        self.hear_all()

    @rule()
    def fail_over(self) -> None:
        lost = self.driver.fail_over()
        self.coordinators += 1
        for client in self.known:
            if {client.joining, client.syncing} & lost:
                client.joining = client.syncing = None
        self.generation = self.driver.generation()

    @rule()
    def settle(self) -> None:
        """Let all time-outs pass, so that every request is answered."""
        self.driver.wait(SETTLE_MS)
        unanswered = set(range(1, self.driver.asked + 1)) - self.driver.replies.keys()
        assert not unanswered
        self.hear_all()

    @invariant()
    def all_heard(self) -> None:
        if hasattr(self, "driver"):
            self.hear_all()

    @invariant()
    def what_was_committed_is_found(self) -> None:
        if hasattr(self, "driver") and self.committed is not None:
            assert self.driver.offset("t").offset == self.committed

    @invariant()
    def a_stable_group_is_as_its_record_says(self) -> None:
        if not hasattr(self, "driver"):
            return
        group = self.driver.describe()
        if group.state == "Stable":
            again = Driver(self.driver.settings, self.driver.now_ms, list(self.driver.log))
            again.fail_over()
            assert again.describe() == group

    def hear_all(self) -> None:
        for client in self.known:
            self.hear(client)

    def hear(self, client: Client) -> None:
        if client.joining in self.driver.replies:
            self.heard_join(client)
        if client.syncing in self.driver.replies:
            self.heard_sync(client)

    def heard_join(self, client: Client) -> None:
        assert client.joining is not None
        joined = self.driver.reply(client.joining, JoinResult)
        client.joining = None
        if joined.error is ErrorCode.none:
            assert joined.generation >= self.generation, "generations rise"
            self.generation = joined.generation
            self.heard_leader((joined.generation, self.coordinators), joined.leader)
            client.member_id, client.generation = joined.member_id, joined.generation
            members = tuple(m.member_id for m in joined.members)
            leads = joined.leader == client.member_id and not joined.skip_assignment
            assert not leads or client.member_id in members
            client.leads = members if leads else None
        elif joined.error is ErrorCode.member_id_required:
            client.member_id = joined.member_id
        elif joined.error is not ErrorCode.rebalance_in_progress:
            client.forget()

    def heard_leader(self, generation: tuple[int, int], leader: str) -> None:
        """A generation has one leader; a static one has another id when it has started again."""
        led = self.leaders.get(generation, leader)
        instance = self.instances[led.partition("-")[0]]
        is_same = instance is not None and instance == self.instances[leader.partition("-")[0]]
        assert led == leader or is_same, "one leader"
        self.leaders[generation] = leader

    def heard_sync(self, client: Client) -> None:
        assert client.syncing is not None
        synced = self.driver.reply(client.syncing, SyncResult)
        client.syncing = None
        if synced.error is ErrorCode.rebalance_in_progress:
            self.join_with(client, b"same")
            return
        if synced.error is not ErrorCode.none:
            client.forget()
            return
        expected = f"{client.member_id} in {client.generation}".encode()
        if client.instance is None:
            assert synced.assignment in (expected, b"")
        owner = self.parts.setdefault((client.generation, client.member_id), synced.assignment)
        assert owner == synced.assignment, "a member has one part in a generation"
        client.part = synced.assignment


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

__all__ = ["GROUP", "TestGroups"]
