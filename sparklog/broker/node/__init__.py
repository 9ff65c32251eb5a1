"""One broker: its incarnations, the replicas that each of them holds, and their roles."""
