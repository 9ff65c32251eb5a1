"""Groups, offsets and transactions: pure state machines. No socket, clock or store in here."""
