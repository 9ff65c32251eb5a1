"""The shard of a transaction coordinator: one partition of __transaction_state."""
