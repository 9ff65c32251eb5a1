"""Translates S3 errors into the errors of this package.

  - 404: ObjectNotFound, or InvalidConfig for a missing bucket
  - 409: `TransientStoreError`; another write to the key is under way, nothing was written
  - 429, 503: `StoreBusy`; the write may have happened
  - an upload whose checksum is wrong: `TransientStoreError`; nothing was written
  - 5xx, a cut or silent connection: `TransientStoreError`; the write may have happened
  - connection refused, no such host: `TransientStoreError`; nothing was sent
  - 401, 403, no credentials: InvalidConfig, or Unavailable for what S3 allowed before
  - expired credentials that botocore renews: `TransientStoreError`; nothing was written
  - credentials whose source fails or still gives the old ones: the same; nothing was sent
  - other expired credentials, a wrong clock: Unavailable

Source: Amazon S3 API reference, error responses and conditional writes.
"""

from __future__ import annotations

from typing import Any

from aiohttp import ClientConnectorError
from aiohttp import ClientError as HttpError
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from sparklog.core.errors import InvalidConfig, SparklogError, Unavailable
from sparklog.store.base import ObjectNotFound, StoreBusy, TransientStoreError

_NEVER_SENT = (boto.ConnectTimeoutError, boto.ProxyConnectionError)
_LOST = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    boto.ChecksumError,
    boto.FlexibleChecksumError,
    ResponseParserError,
    HttpError,
    TimeoutError,
    OSError,
)
_NO_IDENTITY = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound)
_NO_RENEWAL = (
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.MetadataRetrievalError,
)
_RENEWED_TOO_LATE = "Credentials were refreshed, but the refreshed credentials are still expired."
"""The text of botocore's RuntimeError; the library has no class for it."""
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired"})
_SKEWED = "RequestTimeTooSkewed"
_STALE = _EXPIRED | {_SKEWED}
_DAMAGED = frozenset({"BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})
_TOO_MANY = frozenset({429, 503})


def status_of(error: boto.ClientError) -> int:
    """Return the HTTP status of an answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _date_of(error: boto.ClientError) -> str:
    """Return the time of an answer, as the server sent it."""
    return str(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))


def code_of(error: boto.ClientError) -> str:
    """Return S3's name for the error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def translate(
    error: Exception, operation: str, where: str, *, renewed: bool, granted: bool = False
) -> Exception:
    """Return the error to raise instead; an error that is none of S3's comes back as it is.

    Args:
        error: what the client raised.
        operation: what was tried, for the message.
        where: root, key and endpoint as key=value, for the message.
        renewed: whether the next request may have newer credentials.
        granted: whether S3 allowed this operation in the same folder before.
    """
    if isinstance(error, boto.ClientError):
        return _answered(error, operation, where, renewed=renewed, granted=granted)
    if isinstance(error, _NO_IDENTITY):
        return InvalidConfig(
            "S3 needs credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the "
            f"machine a role. operation={operation} {where} error={error}"
        )
    if isinstance(error, boto.SSLError):
        return Unavailable(
            "no secure connection to S3; check the endpoint's scheme and certificate, or name the "
            "file of its authority in AWS_CA_BUNDLE. "
            f"operation={operation} {where} error={error}"
        )
    if isinstance(error, boto.EndpointConnectionError) and _refused(error):
        return _transient("S3 cannot be reached", error, operation, where, unsettled=False)
    if isinstance(error, _NEVER_SENT):
        return _transient("S3 cannot be reached", error, operation, where, unsettled=False)
    if isinstance(error, _NO_RENEWAL) or _came_too_late(error):
        return _transient("no credentials just now", error, operation, where, unsettled=False)
    if isinstance(error, _LOST):
        return _transient("S3 did not finish its answer", error, operation, where, unsettled=True)
    return error


def _came_too_late(error: Exception) -> bool:
    """Return whether the source of credentials still gives the expired ones."""
    return isinstance(error, RuntimeError) and str(error) == _RENEWED_TOO_LATE


def _refused(error: boto.EndpointConnectionError) -> bool:
    """Return whether no connection was made; aiobotocore raises the same for a broken one."""
    return isinstance(error.kwargs.get("error"), ClientConnectorError)


def _answered(
    error: boto.ClientError, operation: str, where: str, *, renewed: bool, granted: bool
) -> Exception:
    status, code = status_of(error), code_of(error)
    facts = f"operation={operation} {where} status={status} code={code}"
    if granted and (code == "NoSuchBucket" or status in (401, 403)) and code not in _STALE:
        return Unavailable(
            "S3 refuses what it allowed before: the bucket is read-only or gone, or its policy or "
            "the rights changed; undo that, and the work goes on. Without s3:ListBucket it refuses "
            f"absent objects, too. {facts}"
        )
    if code == "NoSuchBucket":
        return InvalidConfig(f"no such bucket; create it or use another root. {facts}")
    if status == 404:
        return ObjectNotFound(where)
    if status == 409:
        return TransientStoreError(
            f"another write to this key is under way. {facts}", unsettled=False
        )
    if status in _TOO_MANY:
        return StoreBusy(f"S3 is busy and takes fewer requests. {facts}", unsettled=True)
    if code in _DAMAGED:
        return TransientStoreError(
            f"the bytes that S3 got are not those that were sent. {facts}", unsettled=False
        )
    if status >= 500 or code == "RequestTimeout":
        return TransientStoreError(f"S3 is busy. {facts}", unsettled=True)
    if code in _EXPIRED and renewed:
        return TransientStoreError(f"the credentials have just expired. {facts}", unsettled=False)
    if code in _EXPIRED:
        return Unavailable(f"S3 refuses credentials that are no longer valid; renew them. {facts}")
    if code == _SKEWED:
        return Unavailable(
            "S3 refuses requests because this machine's clock is more than 15 minutes wrong; set "
            f"it, for example by NTP. {facts} date_at_s3={_date_of(error)!r}"
        )
    if status in (401, 403):
        return InvalidConfig(
            "S3 refuses access; check the credentials and grant s3:GetObject, s3:PutObject, "
            "s3:DeleteObject and s3:ListBucket (without it absent objects are refused too). "
            f"{facts}"
        )
    return _refusal(error, facts)


def _refusal(error: boto.ClientError, facts: str) -> SparklogError:
    return Unavailable(f"S3 refuses the request; see the code. {facts} error={error}")


def _transient(
    what: str, error: Any, operation: str, where: str, *, unsettled: bool
) -> TransientStoreError:
    return TransientStoreError(
        f"{what}. operation={operation} {where} error={type(error).__name__}: {error}",
        unsettled=unsettled,
    )
