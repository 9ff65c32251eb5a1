"""Messages of Kafka 4.4 that kio does not have yet, one module for each API and version.

They are written as kio writes its own, so codecs and builders take them for the same. A module
holds both the request and the response. Drop one when kio has it.
Source: Kafka 4.4.0, `common/message/*.json`.
"""
