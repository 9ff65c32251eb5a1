"""Consumer groups of KIP-848: members, target assignments, reconciliation, migration."""
