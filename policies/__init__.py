"""Decision science of Specroute: estimates, policies and their contract.

This package is pure. It does no I/O, reads no clock and imports nothing but numpy and the
standard library: randomness comes in as a generator, time as a number.
"""
