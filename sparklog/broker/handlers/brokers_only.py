"""Requests that only brokers of the cluster may send: clients get CLUSTER_AUTHORIZATION_FAILED.

In Kafka these need the operation CLUSTER_ACTION. Here a broker proves itself by the secret of the
cluster, with and without an authorizer: no ACL makes a client a broker. See decision 52 for what
the secret does not protect against, and `guard_table` for the rights of clients.
"""

from __future__ import annotations

from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.errors import ClusterAuthorizationFailed


def check_broker(node: BrokerNode, context: RequestContext, api: str) -> None:
    """Reject a request of a client where only brokers may ask. It is counted.

    Args:
        node: this broker.
        context: says who asks.
        api: Kafka's name of the request, `FetchFollower` for a fetch of a replica.

    Raises:
        ClusterAuthorizationFailed: no broker of this cluster sent it.
    """
    if node.is_broker(context):
        return
    node.metrics.broker_call_refused(api)
    raise ClusterAuthorizationFailed(
        f"only brokers of the cluster may send this. request={api} client={context.client_host}"
    )
