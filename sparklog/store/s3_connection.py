"""One process's connections to an S3 endpoint.

Owns the client and its event loop thread. It never sends a request a second time: botocore's
retries are set to none, and so is aiohttp's silent repeat on a connection that broke. Both would
hide requests from the bill, and aiohttp's could even report "refused, nothing written" for a put
whose first copy arrived. Retrying is `retrying`'s job.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from os.path import isfile
from typing import Any, ClassVar, Final, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import get_session
from botocore.handlers import add_expect_header
from botocore.loaders import JSONFileLoader, Loader
from botocore.utils import parse_timestamp
from fsspec.asyn import get_loop

from sparklog.store.settings import S3Access, StoreSettings
from sparklog.store.starting_line import STARTING_LINE

T = TypeVar("T")

S3_MODEL: Final = re.compile(r"\bs3[/\\][0-9-]+[/\\]service-2$")
"""The library's file of what S3 can do, without its ending."""
OPERATIONS: Final = (
    "DeleteObject",
    "GetObject",
    "HeadBucket",
    "HeadObject",
    "ListObjectsV2",
    "PutObject",
)
"""Of S3. `HeadBucket` is the library's, for buckets of another region."""
HIDDEN_RETRIES = 0
"""Retries that the libraries below may send by themselves."""
CLOSE_TIMEOUT_S = 5.0


class _SendOnce(AIOHTTPSession):  # type: ignore[misc]  # the library ships no types
    """Keeps aiohttp from repeating a request on a second connection."""

    _trusting: ClassVar[dict[Any, Future[Any]]] = {}
    """Contexts of TLS that are made while a client is, by `verify`. Each is for one session."""

    @classmethod
    def trust_early(cls, verify: Any) -> None:
        """Begin to read the certificates by which servers are verified, in a thread.

        The library reads them at the first request, which waits for it. Python's lock is free
        meanwhile, so a client is made in the same time. The library makes a context by itself if
        it asks for another `verify`, or no longer asks in this way.

        `verify`: a file of certificates; None for the library's own.
        """
        verify = True if verify is None else verify
        thread = ThreadPoolExecutor(1, "sparklog-certificates")
        made = AIOHTTPSession(verify=verify)
        cls._trusting[verify] = thread.submit(made._build_verify_context)  # noqa: SLF001 - no other way
        thread.shutdown(wait=False)

    def _build_verify_context(self) -> Any:
        early = self._trusting.pop(self._verify, None)
        return super()._build_verify_context() if early is None else early.result()

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False  # noqa: SLF001 - aiohttp has no public switch
        return session


async def _wait_for_the_others(**_: Any) -> None:
    """Hold a signed put at the starting line of the thread that sends it, if there is one."""
    line = STARTING_LINE.get()
    if line is not None:
        await line.pass_together()


class _ModelFiles(JSONFileLoader):  # type: ignore[misc]  # the library ships no types
    """Reads a file of the library as plain dictionaries, in a third of the time."""

    def load_file(self, file_path: str) -> Any:
        """Return the values of a file without its ending, or None if there is no such file."""
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            if isfile(file_path + ending):
                with opened(file_path + ending, "rb") as file:
                    found = _parsed(file.read())
                return _used_part(found) if S3_MODEL.search(file_path) else found
        return None


def _parsed(text: bytes) -> Any:
    """Return the values of a JSON text of many objects, all of which stay."""
    collects = gc.isenabled()
    gc.disable()  # to look through them takes three times as long as to parse them
    try:
        return json.loads(text)
    finally:
        if collects:
            gc.enable()


def _used_part(model: dict[str, Any]) -> dict[str, Any]:
    """Return the model of S3 with the operations that are used, and the shapes that they reach.

    The rest, nine tenths of it, would take memory, and time of each collection of garbage.
    """
    operations = {name: model["operations"][name] for name in OPERATIONS}
    shapes: dict[str, Any] = {}
    waiting: list[Any] = list(operations.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = value.get("shape")
            if isinstance(name, str) and name not in shapes:
                shapes[name] = model["shapes"][name]
                waiting.append(shapes[name])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return {**model, "operations": operations, "shapes": shapes}


def _instant(text: Any) -> datetime:
    """Return the time in an answer; in a tenth of the time for the forms that S3 has."""
    try:
        if isinstance(text, str) and text.endswith("Z"):
            return datetime.fromisoformat(text)
        if isinstance(text, str) and text.endswith(" GMT"):
            return parsedate_to_datetime(text)
    except ValueError:
        pass  # the library knows more forms
    found: datetime = parse_timestamp(text)
    return found


class _AnyService(frozenset[str]):
    """Stands for the names of all services: the library looks for the files of one next."""

    def __contains__(self, name: object) -> bool:
        return True


class _ServiceModels(Loader):  # type: ignore[misc]  # as above
    """Loads models of services without a look at the folders of all four hundred."""

    def list_available_services(self, type_name: str) -> _AnyService:
        """Return the services that have files of a type: any, as far as the loader knows."""
        return _AnyService()


@cache
def _service_models() -> _ServiceModels:
    """Return the models of this process. The library reads them for each session otherwise."""
    return _ServiceModels(file_loader=_ModelFiles())


class S3Connection:
    """A client that is made at the first request. Thread-safe; of one process only."""

    def __init__(self, access: S3Access, settings: StoreSettings) -> None:
        """Remember how to connect; nothing is opened yet."""
        self._access = access
        self._settings = settings
        self._opening = asyncio.Lock()
        self._context: Any = None
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, request: Callable[[Any], Awaitable[T]]) -> T:
        """Run `request` with the client in the loop thread, and wait for its result.

        Raises the request's own error, or TimeoutError after `request_timeout_s`.
        """
        loop = self._loop = get_loop()
        return asyncio.run_coroutine_threadsafe(self._bounded(request), loop).result()

    def close(self) -> None:
        """Close the connections; a later request opens new ones.

        The garbage collector may call this in the loop's own thread, which cannot wait for itself.
        """
        loop = self._loop
        if loop is None or loop.is_closed() or not loop.is_running():
            return
        closing = asyncio.run_coroutine_threadsafe(self._disconnect(), loop)
        if asyncio._get_running_loop() is not loop:  # noqa: SLF001 - None outside of any loop
            closing.result(CLOSE_TIMEOUT_S)

    async def _bounded(self, request: Callable[[Any], Awaitable[T]]) -> T:
        client = self._client if self._client is not None else await self._connect()
        async with asyncio.timeout(self._settings.request_timeout_s):
            return await request(client)

    async def _connect(self) -> Any:
        async with self._opening:
            if self._client is None:
                access, settings = self._access, self._settings
                config = AioConfig(
                    http_session_cls=_SendOnce,
                    connect_timeout=settings.connect_timeout_s,
                    read_timeout=settings.read_timeout_s,
                    max_pool_connections=settings.connections_max,
                    retries={"total_max_attempts": 1 + HIDDEN_RETRIES, "mode": "standard"},
                    # `s3.py` adds checksums; by itself the library has them for each request.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    s3=access.addressing and {"addressing_style": access.addressing},
                )
                session = get_session()
                _SendOnce.trust_early(session.get_config_variable("ca_bundle"))
                if session.get_config_variable("data_path") is None:
                    session.register_component("data_loader", _service_models())
                parsers = session.get_component("response_parser_factory")
                parsers.set_parser_defaults(timestamp_parser=_instant)
                self._context = session.create_client(
                    "s3",
                    config=config,
                    endpoint_url=access.endpoint_url,
                    region_name=access.region,
                    aws_access_key_id=access.access_key_id,
                    aws_secret_access_key=access.secret_access_key,
                    aws_session_token=access.session_token,
                )
                client = await self._context.__aenter__()
                # aiohttp would wait for a "100 Continue" that some servers never send.
                client.meta.events.unregister("before-call.s3", add_expect_header)
                client.meta.events.register("before-send.s3.PutObject", _wait_for_the_others)
                self._client = client
        return self._client

    async def _disconnect(self) -> None:
        async with self._opening:
            context, self._context, self._client = self._context, None, None
            if context is not None:
                await context.__aexit__(None, None, None)
