"""A broker as a process, or as the whole of a Spark task: the real environment around a node.

`run` serves until `stop` returns True; `main` is the command line around it, for brokers without
Spark. Importing this module does nothing.

It loads what the first flush and the first fetch of history would otherwise wait for. Compiled
kernels and codecs are loaded when first used, which takes from half a second to seconds on a busy
machine. That is too long for the takeover of a dead leader's partitions.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import uvloop

from sparklog.broker import handlers
from sparklog.broker.debug_state import debug_state, is_ready
from sparklog.broker.handlers import produce
from sparklog.broker.network.advertised_address import Reach
from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.login import LoginTools
from sparklog.broker.network.prometheus import MetricsServer
from sparklog.broker.network.request_time import RequestTime, TimedClients
from sparklog.broker.network.served_listeners import BrokerListeners
from sparklog.broker.network.server import Server
from sparklog.broker.node.node import BrokerNode, node_id
from sparklog.broker.runtime.async_store import ThreadedCompute, ThreadedStore, unforced_store
from sparklog.broker.runtime.diagnostics import start_diagnostics
from sparklog.broker.runtime.environment import Address, Environment, spawn, unfolding_budget
from sparklog.broker.runtime.identity import Ready, new_log_text
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import BROKERS_CLIENT, ExpectedClose, RequestContext
from sparklog.broker.runtime.traces import trace_requests
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.broker import BrokerConfig, parse_broker_configs
from sparklog.core.config.security import refuse_inline_secrets
from sparklog.core.counters import RequestCounters
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidConfig, SparklogError
from sparklog.log.layout import PartitionLayout, topic_of_key
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.encoder import encode
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store as open_any_store

_ROWS = pa.RecordBatch.from_pydict({"key": [b"key"], "value": [b"value"]})
_NOWHERE = PartitionLayout("warm-up", "A" * 22, 0)
_CODECS = ("lz4", "zstd", "none")


def warm_up() -> None:
    """Encode, decode and draft a record in every codec of segments."""
    batch = encode(_ROWS, base_offset=0)
    for codec in _CODECS:
        build_flush(_NOWHERE, [batch], "0" * 32, codec=codec)


logger = logging.getLogger(__name__)

STOP_ASKED_EVERY_S: Final = 0.2
CONNECTIONS_DRAIN_S: Final = 2.0
"""The time that clients have to read their last answers."""
COMPUTE_THREADS_MAX: Final = 4
UNFOLDING_SHARE: Final = 2
"""Half of `queued.max.request.bytes`: so much may compressed batches unfold to at a time."""

SWITCH_INTERVAL_S: Final = 0.0005
"""The time for which the event loop may keep threads waiting that come back from a disk. A put
makes nine calls, and by default each may find the interpreter taken for 5 ms."""

COLLECT_AFTER: Final = 10_000
"""New objects that can form cycles; hardly any here do."""

FAILED: Final = 1
MISUSED: Final = 2


def run(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None] | None = None,
    open_store: Callable[[str], ObjectStore] | None = None,
    listening: Callable[[Address], None] | None = None,
    shares_process: bool = False,
) -> None:
    """Serve the log under `root` until `stop()` says so; then hand everything over and return.

    Args:
        root: as `sparklog.open_log` takes it.
        configs: settings under Kafka's names; `node.id` must be among them.
        stop: asked some five times a second.
        ready: called once, when the broker serves.
        note: takes a sentence about an advertised address that leads elsewhere.
        open_store: opens the store of a root; the usual one by default.
        listening: called once with the bound address, before another broker can learn of this one.
        shares_process: the process has other work, so its collector and switches stay as they are.

    Raises:
        InvalidConfig: a wrong setting or root.
        OSError: the listener's address cannot be had.
        SparklogError: the store does not answer, or another process has this node.id.
    """
    if not __debug__:
        raise InvalidConfig("a broker checks its own invariants: start Python without -O.")
    config = parse_broker_configs(configs)
    node_id(config)
    store = (open_store or _open_store)(root)
    unforced = unforced_store(store, config)
    if not shares_process:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    starter = _Starter(stop, ready, note or _unheard, listening or _unheard, shares_process)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        threaded = ThreadedStore(store, unforced)
        runner.run(_serve(threaded, _counters(store), config, starter))


@dataclass(frozen=True, slots=True)
class _Starter:
    """The starter of a broker; see the arguments of `run`."""

    stop: Callable[[], bool]
    ready: Callable[[Ready], None]
    note: Callable[[str], None]
    listening: Callable[[Address], None]
    shares_process: bool


class _AwaitedNode:
    """The node, for requests and logins that come before it is made."""

    def __init__(self) -> None:
        self.born: asyncio.Future[BrokerNode] = asyncio.get_running_loop().create_future()

    async def node(self) -> BrokerNode:
        return self.born.result() if self.born.done() else await asyncio.shield(self.born)

    async def image(self) -> MetadataImage:
        node = await self.node()
        await node.metadata.opened()
        return node.metadata.image

    def is_ready(self) -> bool:
        if not self.born.done() or not self.born.result().has_started:
            return False
        node = self.born.result()
        return is_ready(node.metadata.image, node.broker_id)

    def state(self) -> dict[str, Any]:
        return debug_state(self.born.result())

    def secret(self) -> str:
        return self.born.result().metadata.image.cluster_secret

    def request_time(self, context: RequestContext, api: int) -> RequestTime | None:
        if not self.born.done():
            return None
        return handlers.request_time(self.born.result(), context, api)


async def _serve(
    store: ThreadedStore, counters: RequestCounters | None, config: BrokerConfig, starter: _Starter
) -> None:
    compute = ThreadedCompute(min(COMPUTE_THREADS_MAX, os.cpu_count() or 1))
    awaited = _AwaitedNode()
    tools = LoginTools(awaited.image, SYSTEM_CLOCK, SYSTEM_ENTROPY)
    listeners = BrokerListeners(config, tools, compute)
    access = listeners.peer_access(awaited.secret)
    network = TcpNetwork(f"{BROKERS_CLIENT}{node_id(config)}", access)
    environment = Environment(
        store,
        network,
        SYSTEM_CLOCK,
        SYSTEM_ENTROPY,
        compute,
        unfolding_budget(config.whole("queued.max.request.bytes") // UNFOLDING_SHARE),
    )
    metrics = BrokerMetrics(counters)
    traces = trace_requests(metrics, config, SYSTEM_CLOCK)
    reach = Reach(
        node_id(config),
        new_nonce(SYSTEM_ENTROPY),
        lambda client_id: TcpNetwork(client_id, listeners.peer_access(None)),
        starter.note,
    )

    async def handle(request: Any, context: RequestContext) -> Any:
        if reach.arrived(context):
            raise ExpectedClose("the address leads here: there is nothing more to say")
        return await handlers.handle(await awaited.node(), request, context)

    timed = TimedClients(awaited.request_time)
    server = Server(handle, handlers.refuse, config, metrics, timed)
    page = MetricsServer(metrics, awaited.state, listeners.metrics_tls(), awaited.is_ready)
    try:
        opened = await listeners.open(server)
        address, bound = opened.inter_broker, opened.bound
        starter.listening(bound)
        node = BrokerNode(config, environment, address, metrics=metrics, endpoints=opened.endpoints)
        _connect_server(server, timed, node)
        awaited.born.set_result(node)
        reach.try_own(address, bound)
        port = config.whole("metrics.port")
        metrics_port = await page.start(bound.host, port) if port >= 0 else None
        await compute(warm_up)
        await node.start()
        server.begin_produce_by(partial(produce.begin, node))
        if not starter.shares_process:
            _spare_the_collector()
        try:
            starter.ready(_ready(node, metrics_port))
            reach.watch(node.metadata)
            await _live(node, starter.stop)
        finally:
            await node.stop(drain=False)
        await server.stop(CONNECTIONS_DRAIN_S)
    finally:
        awaited.born.cancel()
        await reach.close()
        await page.stop()
        await server.stop()
        await listeners.close()
        await network.close()
        if traces is not None:
            await compute(traces.close)
        compute.close()
        store.close()


def _connect_server(server: Server, timed: TimedClients, node: BrokerNode) -> None:
    """Give the server the settings, quotas and audit of the node."""
    server.in_force = node.settings_in_force
    node.metadata.subscribe(lambda image: timed.saw(image.client_quotas))
    server.client_quotas = lambda: node.metadata.image.client_quotas
    server.audit_failed_login = lambda login: node.audit.failed_login(
        login.listener, login.mechanism, login.reason, login.host
    )


def _unheard(note: object) -> None:
    """Leave a note to the log, which has it."""


def _spare_the_collector() -> None:
    """Keep what was imported and made so far out of garbage collection.

    Python's collector looks at all old objects every so often. With Arrow, numba and Spark loaded
    that holds up every client for a tenth of a second. Garbage of requests is still collected,
    also where the start paused the collector.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


async def _live(node: BrokerNode, stop: Callable[[], bool]) -> None:
    """Let the node live until it is asked to stop, and have it hand over then.

    Raises:
        SparklogError: it cannot go on.
    """
    living = spawn(node.run())
    while not living.done():
        await asyncio.wait((living,), timeout=STOP_ASKED_EVERY_S)
        if not living.done() and stop():
            await node.stop(drain=True)
            break
    await living


def _ready(node: BrokerNode, metrics_port: int | None) -> Ready:
    identity = node.current_incarnation.identity
    return Ready(
        identity.broker_id,
        identity.broker_epoch,
        node.address.host,
        node.address.port,
        metrics_port,
        node.cluster_id,
        identity.began_log,
    )


def _open_store(root: str) -> ObjectStore:
    return open_any_store(root, label_of=topic_of_key)


def _counters(store: ObjectStore) -> RequestCounters | None:
    counters = getattr(store, "counters", None)
    return counters if isinstance(counters, RequestCounters) else None


def main(
    argv: Sequence[str] | None = None, open_store: Callable[[str], ObjectStore] | None = None
) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code. `open_store` is as in `run`."""
    args = _parser().parse_args(argv)
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _: asked.append(signum))
    try:
        start_diagnostics(args.log_level, os.environ)  # noqa: TID251 - this is the edge
        stop = partial(bool, asked)
        run(args.root, _configs(args), stop=stop, ready=_say, open_store=open_store)
    except InvalidConfig as error:
        sys.stderr.write(f"sparklog broker: {error}\n")
        return MISUSED
    except (SparklogError, OSError) as error:
        sys.stderr.write(f"sparklog broker: {error}\n")
        return FAILED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sparklog.broker.main",
        description="Serve a log to Kafka's clients, without Spark.",
        allow_abbrev=False,
    )
    parser.add_argument("--root", required=True, help="path, file://, s3:// or memory:// URL")
    parser.add_argument("--broker-id", type=int, required=True, help="the broker's node.id")
    parser.add_argument("--listener", default="127.0.0.1:9092", help="host:port; port 0 is any")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--log-level", default="INFO")
    return parser


def _configs(args: argparse.Namespace) -> dict[str, str]:
    """Return the settings of a command line.

    Raises:
        InvalidConfig: one without a value, or with a secret in clear text.
    """
    configs = {"node.id": str(args.broker_id), "listeners": f"PLAINTEXT://{args.listener}"}
    for text in args.config:
        name, equals, value = str(text).partition("=")
        if not equals:
            raise InvalidConfig(f"--config takes NAME=VALUE. config={text!r}")
        configs[name] = value
    refuse_inline_secrets(configs)
    return configs


def _say(ready: Ready) -> None:
    where = Address(ready.host, ready.port)
    sys.stdout.write(f"broker {ready.broker_id} listening on {where}\n")
    if ready.began_log:
        sys.stdout.write(f"broker {ready.broker_id} {new_log_text(ready.cluster_id)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
