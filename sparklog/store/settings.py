"""The settings of a store, with the reason for each default.

Names end in their unit. Nothing here reads the environment.

The address of an S3 endpoint and credentials in variables are read once, at the edge.

botocore itself looks up anything not given here: profiles, web identity, container and machine
roles, `credential_process`. It renews those before they expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from sparklog.core.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Time-outs, retries, hedging and durability of a store."""

    fsync: bool = True
    """File roots: fsync each object before it counts as created. Without it a power cut may lose
    acknowledged records. A killed process loses nothing either way."""

    connect_timeout_s: float = 5.0
    """Longest wait for a connection. Within a region it takes milliseconds."""

    read_timeout_s: float = 20.0
    """Longest silence on a connection. S3's own slow answers stay under ten seconds."""

    request_timeout_s: float = 120.0
    """Longest time for one request. A segment of 128 MiB takes this at 1 MiB/s."""

    connections_max: int = 64
    """Connections to one S3 endpoint per process. At 50 MB/s each they fill a 25 Gbit/s card."""

    probe: bool = True
    """S3 roots: before the first write under a root, race for names to see that the store lets one
    writer of several create each. About 120 requests once per root, then one GET per process. On a
    store that loses the race, writers would overwrite each other's records."""

    retry_deadline_s: float = 30.0
    """Longest time to retry one request before Unavailable. Longer than S3 takes to split a hot
    prefix's load, shorter than Kafka clients' `delivery.timeout.ms` of 120 s."""

    retry_first_pause_ms: float = 50.0
    """Upper end of the first pause; it doubles from try to try, each time drawn from zero up."""

    retry_pause_max_ms: float = 5_000.0
    """Upper end of any pause: a store that is back is noticed within this."""

    retry_burst: int = 64
    """Retries one store in one process may send without waiting for `retry_per_s`."""

    retry_per_s: float = 16.0
    """Retries per second beyond the burst, over all threads: keeps a storm from feeding itself."""

    hedge: bool = True
    """S3 roots: send a GET a second time when it is slow, and take the first answer."""

    hedge_percentile: float = 0.95
    """A GET is slow when it takes longer than this share of the recent ones of its size."""

    hedge_after_min_ms: float = 20.0
    """Never hedge sooner: below this a second request costs more than it saves."""

    hedge_share_max: float = 0.05
    """Hedges per GET, at most: bounds what hedging adds to the bill."""

    hedge_samples_min: int = 32
    """GETs of a size that must have been seen before the percentile means anything."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidConfig: a number that is not positive, or a share above 1.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, bool) and not value > 0:  # also refuses NaN
                raise InvalidConfig(f"must be positive. setting={each.name} value={value}")
        for name in ("hedge_percentile", "hedge_share_max"):
            if getattr(self, name) > 1:
                raise InvalidConfig(f"a share is at most 1. setting={name}")


DEFAULT_REGION = "us-east-1"
"""For endpoints that are not Amazon's: they sign with a region too, and this is the usual one."""


ADDRESSING_VARIABLE: Final = "SPARKLOG_S3_ADDRESSING_STYLE"
ADDRESSINGS: Final = ("auto", "path", "virtual")
"""The place of the bucket's name: `path` is the URL's path, `virtual` its host. `auto` is `virtual`
at Amazon and `path` at other endpoints."""
ENCRYPTION_VARIABLE: Final = "SPARKLOG_S3_ENCRYPTION"
KMS_KEY_VARIABLE: Final = "SPARKLOG_S3_KMS_KEY_ID"
KMS_ENCRYPTIONS: Final = ("aws:kms", "aws:kms:dsse")
ENCRYPTIONS: Final = ("AES256", *KMS_ENCRYPTIONS)
"""Values of `x-amz-server-side-encryption`. Source: Amazon S3 API reference, PutObject."""

CHECKSUM_VARIABLE: Final = "SPARKLOG_S3_CHECKSUM"
CHECKSUMS: Final = ("crc32c", "none")
"""`crc32c`: S3 checks each upload, and whole downloads are checked here. Some servers refuse the
headers, so that is the default at Amazon only."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """One endpoint, one identity, and how the endpoint encrypts. Secrets stay out of its `repr`."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    encryption: str | None = None
    """Encryption of new objects, one of `ENCRYPTIONS`; None: the bucket's default."""
    kms_key_id: str | None = None
    """The key of AWS KMS; None: the one of the account."""
    addressing: str | None = None
    """One of `ADDRESSINGS`; None: what Amazon's configuration file says, else `auto`."""
    checksum: str | None = None
    """One of `CHECKSUMS`; None: the default of the endpoint."""

    def __post_init__(self) -> None:
        """Check the encryption, the addressing and the checksum.

        Raises:
            InvalidConfig: S3 has no such value, or a key is given for an encryption without keys.
        """
        if self.addressing is not None and self.addressing not in ADDRESSINGS:
            raise InvalidConfig(
                f"{ADDRESSING_VARIABLE} is one of {', '.join(ADDRESSINGS)}. "
                f"given={self.addressing!r}"
            )
        if self.checksum is not None and self.checksum not in CHECKSUMS:
            raise InvalidConfig(
                f"{CHECKSUM_VARIABLE} is one of {', '.join(CHECKSUMS)}. given={self.checksum!r}"
            )
        if self.encryption is not None and self.encryption not in ENCRYPTIONS:
            raise InvalidConfig(
                f"{ENCRYPTION_VARIABLE} is one of {', '.join(ENCRYPTIONS)}. "
                f"given={self.encryption!r}"
            )
        if self.kms_key_id is not None and self.encryption not in KMS_ENCRYPTIONS:
            raise InvalidConfig(
                f"{KMS_KEY_VARIABLE} needs {ENCRYPTION_VARIABLE}={KMS_ENCRYPTIONS[0]}. "
                f"given={self.encryption!r}"
            )

    @property
    def renewed(self) -> bool:
        """Return whether botocore finds the credentials and renews those that expire."""
        return self.access_key_id is None

    @property
    def checks(self) -> bool:
        """Return whether uploads and whole downloads have a checksum."""
        at_amazon = CHECKSUMS[0] if self.endpoint_url is None else CHECKSUMS[1]
        return (self.checksum or at_amazon) == CHECKSUMS[0]

    @property
    def put_arguments(self) -> Mapping[str, str | bool]:
        """Return the arguments that each PutObject has for the encryption."""
        if self.encryption is None:
            return {}
        found: dict[str, str | bool] = {"ServerSideEncryption": self.encryption}
        if self.encryption == KMS_ENCRYPTIONS[0]:
            found["BucketKeyEnabled"] = True  # one call of KMS for many objects
        if self.kms_key_id is not None:
            found["SSEKMSKeyId"] = self.kms_key_id
        return found

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> S3Access:
        """Take Amazon's variables and sparklog's own; an empty one counts as absent.

        Raises:
            InvalidConfig: the encryption, the addressing or the checksum makes no sense.
        """

        def first(*names: str) -> str | None:
            return next((environment[n] for n in names if environment.get(n)), None)

        endpoint_url = first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        region = first("AWS_REGION", "AWS_DEFAULT_REGION")
        return cls(
            endpoint_url=endpoint_url,
            region=region or (DEFAULT_REGION if endpoint_url is not None else None),
            access_key_id=first("AWS_ACCESS_KEY_ID"),
            secret_access_key=first("AWS_SECRET_ACCESS_KEY"),
            session_token=first("AWS_SESSION_TOKEN"),
            encryption=first(ENCRYPTION_VARIABLE),
            kms_key_id=first(KMS_KEY_VARIABLE),
            addressing=first(ADDRESSING_VARIABLE),
            checksum=first(CHECKSUM_VARIABLE),
        )
