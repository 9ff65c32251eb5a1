"""Pure decisions of the controller: elections, in-sync replicas, reassignments."""
