"""Requests to Azure and Google: pooled connections, and errors in the words of this package.

An answer is classified by its status:

  - 404: ObjectNotFound
  - 409: `TransientStoreError`; another write to the key is under way, nothing was written
  - 408, 429, 5xx: `TransientStoreError`; the write may have happened
  - 401, 403: InvalidConfig, or Unavailable for what the service allowed before
  - anything else: Unavailable

A request without an answer is a `TransientStoreError` if no connection was made, because nothing
was sent; otherwise it is a `LostAnswer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from requests import Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectTimeout
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError
from urllib3.exceptions import SSLError as TlsError

from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.store.base import ObjectNotFound, StoreBusy, TransientStoreError
from sparklog.store.settings import StoreSettings

_NEVER_SENT = (NewConnectionError, ConnectTimeoutError, ConnectTimeout)


class LostAnswer(TransientStoreError):
    """A request was sent and got no answer: a write may have happened, or may still happen."""

    def __init__(self, message: str) -> None:
        """Say what happened."""
        super().__init__(message, unsettled=True)


def pooled(session: Session, settings: StoreSettings) -> Session:
    """Return `session` with up to `connections_max` open connections, and without retries."""
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=settings.connections_max, max_retries=0))
    return session


@dataclass(frozen=True, slots=True)
class CloudRequest:
    """One request, for the messages of its errors."""

    service: str
    rights: str
    """The rights that a log needs, for an identity that lacks them."""
    operation: str
    where: str
    """Root, key and endpoint as key=value."""
    granted: bool = False
    """True if the service allowed this operation in the same folder before."""

    def answered(self, status: int, code: str) -> Exception:
        """Return the error to raise for an answer with this status and the service's own code."""
        facts = f"operation={self.operation} {self.where} status={status} code={code}"
        if status == 404:
            return ObjectNotFound(self.where)
        if status == 409:
            return TransientStoreError(
                f"another write to this key is under way. {facts}", unsettled=False
            )
        if status in (429, 503):
            return StoreBusy(
                f"{self.service} is busy and takes fewer requests. {facts}", unsettled=True
            )
        if status == 408 or status >= 500:
            return TransientStoreError(f"{self.service} is busy. {facts}", unsettled=True)
        if status in (401, 403) and self.granted:
            return self.withdrawn(status, code)
        if status in (401, 403):
            return InvalidConfig(
                f"{self.service} refuses access; check the credentials and the clock, and grant "
                f"{self.rights}. {facts}"
            )
        return Unavailable(f"{self.service} refuses the request; see the code. {facts}")

    def withdrawn(self, status: int, code: str) -> Unavailable:
        """Return the error to raise for a refusal of what was allowed before."""
        return Unavailable(
            f"{self.service} refuses what it allowed before: the place is gone or read-only, the "
            "rights changed, or a key or signature is no longer valid; undo that, and the work "
            f"goes on. operation={self.operation} {self.where} status={status} code={code}"
        )

    def unanswered(self, error: BaseException) -> Exception:
        """Return the error to raise for a request that ended without an answer."""
        facts = f"operation={self.operation} {self.where} error={type(error).__name__}: {error}"
        reason = _reason(error)
        if isinstance(reason, TlsError):
            return Unavailable(
                f"no secure connection to {self.service}; check the endpoint's scheme and "
                f"certificate. {facts}"
            )
        if isinstance(reason, _NEVER_SENT):
            return TransientStoreError(
                f"{self.service} cannot be reached. {facts}", unsettled=False
            )
        return LostAnswer(f"{self.service} did not finish its answer. {facts}")

    def unidentified(self, error: BaseException) -> TransientStoreError:
        """Return the error to raise when the source of credentials fails; nothing was sent."""
        return TransientStoreError(
            f"no credentials just now. operation={self.operation} {self.where} "
            f"error={type(error).__name__}: {error}",
            unsettled=False,
        )


def _reason(error: BaseException) -> BaseException:
    """Return the error that requests and urllib3 wrapped into `error`."""
    first = error.args[0] if error.args else None
    for each in (error, first):
        if isinstance(each, MaxRetryError) and each.reason is not None:
            return each.reason
    return error
