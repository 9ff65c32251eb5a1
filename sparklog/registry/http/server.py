"""The server of the REST API: Starlette's routes over `api`, served by uvicorn.

Handlers run in threads, so that a slow store does not stop others. A body over the limit is refused
before it is read to its end. The API has no login: SECURITY.md says what protects it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sparklog.core.errors import InvalidConfig, OutcomeUnknown, SparklogError
from sparklog.core.web_guard import NO_CONTENT_POLICY, WebGuard
from sparklog.core.web_requests import EncodedPath
from sparklog.registry.http import api
from sparklog.registry.http.request import BODY_BYTES_MAX, ApiRequest
from sparklog.registry.http.serving import serve_application
from sparklog.registry.model import refusal
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import compact_json
from sparklog.registry.registry import SchemaRegistry

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPTED: Final = frozenset(
    {
        CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json",
        "application/octet-stream",
    }
)  # fmt: skip
DEFAULT_PORT: Final = 8081

Routes = Mapping[str, Mapping[str, api.Handler]]

ROUTES: Final[Routes] = {
    "/": {"GET": api.root},
    "/contexts": {"GET": api.contexts},
    "/schemas/types": {"GET": api.schema_types},
    "/schemas/ids/{id}": {"GET": api.schema_by_id},
    "/schemas/ids/{id}/schema": {"GET": api.text_by_id},
    "/schemas/ids/{id}/subjects": {"GET": api.subjects_of_id},
    "/schemas/ids/{id}/versions": {"GET": api.versions_of_id},
    "/schemas/guids/{guid}": {"GET": api.schema_by_guid},
    "/schemas/guids/{guid}/ids": {"GET": api.ids_of_guid},
    "/subjects": {"GET": api.subjects},
    "/subjects/{subject}": {"POST": api.look_up, "DELETE": api.delete_subject},
    "/subjects/{subject}/versions": {"GET": api.versions, "POST": api.register},
    "/subjects/{subject}/versions/{version}": {
        "GET": api.version,
        "DELETE": api.delete_version,
    },
    "/subjects/{subject}/versions/{version}/schema": {"GET": api.text_of_version},
    "/subjects/{subject}/versions/{version}/referencedby": {"GET": api.referenced_by},
    "/compatibility/subjects/{subject}/versions": {"POST": api.compatibility},
    "/compatibility/subjects/{subject}/versions/{version}": {"POST": api.compatibility},
    "/config": {"GET": api.config, "PUT": api.put_config, "DELETE": api.delete_config},
    "/config/{subject}": {"GET": api.config, "PUT": api.put_config, "DELETE": api.delete_config},
    "/mode": {"GET": api.mode, "PUT": api.put_mode, "DELETE": api.delete_mode},
    "/mode/{subject}": {"GET": api.mode, "PUT": api.put_mode, "DELETE": api.delete_mode},
}


def application(registry: SchemaRegistry, hosts: Collection[str] = ()) -> Starlette:
    """Return the ASGI application over a registry; requests name one of `hosts`, or any if empty.

    A body needs a content type of ours. Browsers first ask if they may send such a one.
    """
    from starlette.applications import Starlette  # noqa: PLC0415 - of the extra `registry`
    from starlette.middleware import Middleware  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    routes = [
        Route(path, _endpoint(registry, handlers), methods=list(handlers))
        for path, handlers in ROUTES.items()
    ]
    errors: dict[Any, Any] = {404: _no_such_path, 405: _no_such_path, 500: _failed}
    guard = Middleware(
        WebGuard, hosts=hosts, refuse=_refused,
        headers={"Content-Security-Policy": NO_CONTENT_POLICY},
    )  # fmt: skip
    layers = [guard, Middleware(EncodedPath)]
    return Starlette(routes=routes, exception_handlers=errors, middleware=layers)


def _endpoint(
    registry: SchemaRegistry, handlers: Mapping[str, api.Handler]
) -> Callable[[Request], Any]:
    from starlette.concurrency import run_in_threadpool  # noqa: PLC0415

    async def endpoint(request: Request) -> Response:
        handler = handlers["GET" if request.method == "HEAD" else request.method]
        try:
            body = await _body(request)
            asked = ApiRequest(_unquoted(request.path_params), dict(request.query_params), body)
            found = await run_in_threadpool(handler, registry, asked)
        except SparklogError as error:
            return _refusal(error)
        return _response(200, found)

    return endpoint


def _unquoted(path: Mapping[str, str]) -> dict[str, str]:
    from urllib.parse import unquote  # noqa: PLC0415

    return {name: unquote(value) for name, value in path.items()}


async def _body(request: Request) -> bytes:
    if request.method not in ("POST", "PUT"):
        return b""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ACCEPTED:
        raise RegistryRefused(415, f"HTTP 415 Unsupported Media Type: {kind[:100]!r}")
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            raise RegistryRefused(413, f"the body is too large: at most {BODY_BYTES_MAX} bytes")
    return bytes(data)


def _response(status: int, value: Any) -> Response:
    from starlette.responses import Response  # noqa: PLC0415

    text = value if isinstance(value, api.SchemaText) else compact_json(value)
    return Response(text, status, media_type=CONTENT_TYPE)


def _refusal(error: SparklogError) -> Response:
    if isinstance(error, RegistryRefused):
        return _response(error.status, {"error_code": error.code, "message": str(error)})
    if isinstance(error, OutcomeUnknown):
        text = f"Error in the backend data store: look before trying again: {error}"
    else:
        text = f"Error in the backend data store: {error}"
    logger.warning("a request failed: %s", error)
    return _response(500, {"error_code": refusal.STORE_ERROR, "message": text})


def _refused(status: int, words: str) -> Response:
    return _response(status, {"error_code": status, "message": f"HTTP {status}: {words}"})


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return _response(status, {"error_code": status, "message": f"HTTP {status}"})


async def _failed(request: Request, error: Exception) -> Response:
    return _response(500, {"error_code": 500, "message": "Internal Server Error"})


def serve_forever(
    registry: SchemaRegistry, listening: Sequence[socket.socket], hosts: Collection[str] = ()
) -> None:
    """Serve until a signal to end; requests that have begun are finished. See `application`."""
    serve_application(application(registry, hosts), listening)


def check_libraries() -> None:
    """Check that the extra is installed.

    Raises:
        InvalidConfig: a library is missing.
    """
    import importlib  # noqa: PLC0415

    for name in ("starlette", "uvicorn", "jsonschema", "google.protobuf"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            raise InvalidConfig(
                "the registry needs more libraries: pip install 'sparklog[registry]'. "
                f"missing={missing.name}"
            ) from missing
