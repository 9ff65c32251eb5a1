"""Groups, offsets and transactions: pure state machines without sockets, clocks or stores."""
