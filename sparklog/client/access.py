"""Reads and changes users and ACLs of a cluster. Source: KIP-140, KIP-554.

A password stays here: the broker gets a salted derivation of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sparklog.client.connections import BrokerConnections, RequestDraft, sole
from sparklog.client.errors import of_code
from sparklog.core.errors import InvalidRequest, ResourceNotFound
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import parse_principal
from sparklog.security.sasl.credentials import SaltedPassword, ScramMechanism

ACL_VERSIONS: Final = (1, 3)
USER_VERSIONS: Final = (0, 0)


def read_acls(brokers: BrokerConnections, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that a filter matches. Raises as `Admin.acls`."""
    answer = brokers.ask(
        Api.DESCRIBE_ACLS, *ACL_VERSIONS, lambda of: of.request(**_filter_fields(wanted))
    )
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, "ACLs could not be read")
    return [_binding(resource, acl) for resource in answer.resources for acl in resource.acls]


def make_acls(brokers: BrokerConnections, acls: Sequence[AclBinding]) -> None:
    """Create ACLs. Raises as `Admin.create_acls`."""

    def draft(of: RequestDraft) -> Any:
        return of.request(
            creations=tuple(
                of.part(
                    "AclCreation",
                    resource_type=int(acl.resource_type),
                    resource_name=acl.resource_name,
                    resource_pattern_type=int(acl.pattern_type),
                    principal=str(acl.principal),
                    host=acl.host,
                    operation=int(acl.operation),
                    permission_type=int(acl.permission),
                )
                for acl in acls
            )
        )

    answer = brokers.change(Api.CREATE_ACLS, *ACL_VERSIONS, draft)
    for acl, result in zip(acls, answer.results, strict=True):
        if result.error_code != 0:
            raise of_code(
                result.error_code,
                result.error_message,
                "an ACL was not created",
                resource=f"{acl.resource_type.name}:{acl.resource_name}",
                principal=acl.principal,
            )


def remove_acls(brokers: BrokerConnections, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Delete what some filters match. Raises as `Admin.delete_acls`."""

    def draft(of: RequestDraft) -> Any:
        return of.request(
            filters=tuple(of.part("DeleteAclsFilter", **_filter_fields(one)) for one in filters)
        )

    deleted: dict[AclBinding, None] = {}
    answer = brokers.change(Api.DELETE_ACLS, *ACL_VERSIONS, draft)
    for result in answer.filter_results:
        for part in (result, *result.matching_acls):
            if part.error_code != 0:
                raise of_code(part.error_code, part.error_message, "ACLs were not deleted")
        deleted.update((_binding(acl, acl), None) for acl in result.matching_acls)
    return list(deleted)


def read_users(brokers: BrokerConnections) -> dict[str, dict[ScramMechanism, int]]:
    """Return the iterations by mechanism of each user. Raises as `Admin.users`."""
    answer = brokers.ask(
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS, *USER_VERSIONS, lambda of: of.request(users=None)
    )
    if answer.error_code != 0:
        raise of_code(answer.error_code, answer.error_message, "users could not be read")
    return {
        result.user: {
            ScramMechanism(info.mechanism): int(info.iterations)
            for info in result.credential_infos
            if info.mechanism in ScramMechanism.__members__.values()
        }
        for result in answer.results
        if result.error_code == 0
    }


def put_credentials(
    brokers: BrokerConnections, user: str, made: Mapping[ScramMechanism, SaltedPassword]
) -> None:
    """Set a user's credentials, one request each. Raises as `Admin.set_password`."""
    for mechanism, salted in made.items():

        def draft(
            of: RequestDraft,
            mechanism: ScramMechanism = mechanism,
            salted: SaltedPassword = salted,
        ) -> Any:
            upsertion = of.part(
                "ScramCredentialUpsertion",
                name=user,
                mechanism=int(mechanism),
                iterations=salted.iterations,
                salt=salted.salt,
                salted_password=salted.salted_password,
            )
            return of.request(deletions=(), upsertions=(upsertion,))

        _alter(brokers, draft, "the password was not set", user, mechanism)


def drop_credentials(
    brokers: BrokerConnections, user: str, mechanisms: Collection[ScramMechanism] | None
) -> None:
    """Delete credentials, one request each. Raises as `Admin.remove_password`."""
    if mechanisms is None:
        mechanisms = list(read_users(brokers).get(user, {}))
        if not mechanisms:
            raise ResourceNotFound(f"no such user. user={user!r}")
    for mechanism in mechanisms:

        def draft(of: RequestDraft, mechanism: ScramMechanism = mechanism) -> Any:
            deletion = of.part("ScramCredentialDeletion", name=user, mechanism=int(mechanism))
            return of.request(deletions=(deletion,), upsertions=())

        _alter(brokers, draft, "the credential was not deleted", user, mechanism)


def _alter(
    brokers: BrokerConnections, draft: Any, doing: str, user: str, mechanism: ScramMechanism
) -> None:
    api = Api.ALTER_USER_SCRAM_CREDENTIALS
    result = sole(brokers.change(api, *USER_VERSIONS, draft).results, api)
    if result.error_code != 0:
        raise of_code(
            result.error_code,
            result.error_message,
            doing,
            user=repr(user),
            mechanism=mechanism.sasl_name,
        )


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _binding(resource: Any, acl: Any) -> AclBinding:
    """Return an ACL of a response. Kafka may have ACLs that `check_binding` rejects."""
    try:
        return AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            parse_principal(acl.principal),
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
    except ValueError as error:
        raise InvalidRequest(
            f"the brokers have an ACL with a code of a newer Kafka. reason={error}"
        ) from error
