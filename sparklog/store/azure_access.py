"""The identity with which Azure Blob Storage is used, read once from the environment.

The variables are those of Azure's own command line and of adlfs. Without a key or a token, Azure's
library looks for an identity: workload identity, managed identity, environment, developer login.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.core.errors import InvalidConfig

ENDPOINT_VARIABLE: Final = "AZURE_STORAGE_SERVICE_ENDPOINT"
CONNECTION_VARIABLE: Final = "AZURE_STORAGE_CONNECTION_STRING"
KEY_VARIABLES: Final = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
TOKEN_VARIABLE: Final = "AZURE_STORAGE_SAS_TOKEN"  # noqa: S105 - the name of a variable
PUBLIC_SUFFIX: Final = "core.windows.net"


@dataclass(frozen=True, slots=True)
class AzureAccess:
    """One endpoint and one identity. Secrets stay out of its `repr`."""

    blob_endpoint: str | None = None
    """URL of the blob service; None: that of the account in Azure's public cloud."""
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)

    def endpoint_url(self, account: str) -> str:
        """Return the URL of the blob service of `account`, which may be a whole host name."""
        if self.blob_endpoint is not None:
            return self.blob_endpoint.rstrip("/")
        if "." in account:
            return f"https://{account.replace('.dfs.', '.blob.', 1)}"
        return f"https://{account}.blob.{PUBLIC_SUFFIX}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> AzureAccess:
        """Take Azure's variables; an empty one counts as absent.

        Raises:
            InvalidConfig: the connection string has a part without a value.
        """
        parts = _connection_parts(environment.get(CONNECTION_VARIABLE, ""))

        def first(*found: str | None) -> str | None:
            return next((each for each in found if each), None)

        keys = (environment.get(name) for name in KEY_VARIABLES)
        return cls(
            blob_endpoint=first(environment.get(ENDPOINT_VARIABLE), parts.get("BlobEndpoint")),
            account_key=first(*keys, parts.get("AccountKey")),
            sas_token=first(environment.get(TOKEN_VARIABLE), parts.get("SharedAccessSignature")),
        )


def _connection_parts(text: str) -> dict[str, str]:
    """Split `AccountName=…;AccountKey=…` into its parts.

    Raises:
        InvalidConfig: a part has no value. The message does not contain the text.
    """
    parts: dict[str, str] = {}
    for part in filter(None, text.split(";")):
        name, sign, value = part.partition("=")
        if not sign:
            raise InvalidConfig(
                f"{CONNECTION_VARIABLE} has parts like AccountKey=…, separated by semicolons."
            )
        parts[name] = value
    return parts
