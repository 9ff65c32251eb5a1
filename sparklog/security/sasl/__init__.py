"""SASL mechanisms and the state of an authentication, without sockets. KIP-84, KIP-152, KIP-368."""
