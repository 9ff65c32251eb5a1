"""Share groups in a broker: what it delivers, and how it stores the state of that (KIP-932)."""
