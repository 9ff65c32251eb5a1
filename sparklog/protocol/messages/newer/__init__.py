"""Messages of Kafka 4.4 that kio does not have yet, one module for each API and version.

They have the form of kio's own modules, so codecs and builders treat them alike. A module holds
both the request and the response. Remove one when kio has it.
Source: Kafka 4.4.0, `common/message/*.json`.
"""
