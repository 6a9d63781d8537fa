"""The nodes of a gateway of several processes: ids, leases, and signed requests to each other.

`ids`, `envelope`, `lease` and `node` do no I/O of their own: clocks, randomness, stores and transports are arguments,
so that they can run under virtual time.
"""
