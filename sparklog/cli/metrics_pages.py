"""Pages of brokers: reads `/metrics` and `/debug/state` over HTTP, with limits on size and time."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sparklog.core.errors import DataCorrupt, InvalidRequest, Unavailable

PAGE_BYTES_MAX: Final = 64 * 1024 * 1024
TIMEOUT_S: Final = 10.0


def page_url(address: str) -> str:
    """Return the URL of a page: `HOST:PORT` means plain HTTP.

    Raises:
        InvalidRequest: it is neither HOST:PORT nor an http or https URL.
    """
    url = address if "://" in address else f"http://{address}"
    if not url.startswith(("http://", "https://")):
        raise InvalidRequest(f"a page is HOST:PORT or an http URL. page={address!r}")
    return url.rstrip("/")


def read_page(url: str, path: str) -> bytes:
    """Return the body of a page.

    Raises:
        Unavailable: it does not answer, or refuses. DataCorrupt: it is too large.
    """
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=TIMEOUT_S) as answer:  # noqa: S310 - see page_url
            body: bytes = answer.read(PAGE_BYTES_MAX + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"the page does not answer. page={url}{path} problem={error}") from error
    if len(body) > PAGE_BYTES_MAX:
        raise DataCorrupt(f"the page is too large. page={url}{path} limit={PAGE_BYTES_MAX}")
    return body


def samples_of(url: str, metric: str) -> list[Sample]:
    """Return the samples of one metric on a page; raises as `read_page`.

    Raises:
        DataCorrupt: the page is not in Prometheus' format.
    """
    text = read_page(url, "/metrics").decode("utf-8", "replace")
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise DataCorrupt(f"the page is not in Prometheus' format. page={url}") from error
    return [one for family in families for one in family.samples if one.name == metric]
