"""One folder a protocol. Pure: no async, no clock, no ids made, no environment, no logging, no network, no database."""
