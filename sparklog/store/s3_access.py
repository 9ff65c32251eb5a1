"""Where an S3 endpoint is, and with which credentials: read once, at the edge.

What is not given here is looked up by botocore itself: profiles, container and machine roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_REGION = "us-east-1"
"""For endpoints that are not Amazon's: they sign with a region too, and this is the usual one."""


@dataclass(frozen=True, slots=True)
class S3Access:
    """One endpoint and one identity. Secrets stay out of its `repr`."""

    endpoint_url: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> S3Access:
        """Take Amazon's own variables from `environment`; an empty one counts as absent."""

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
        )
