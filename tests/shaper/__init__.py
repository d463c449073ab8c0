"""A bad network on demand, without root: UDP datagrams between two ends, delayed, lost, doubled, held.

`line` decides what befalls a datagram, `relay` has the sockets, `program` is the process that both live in
(with a signaling server that leads every connection through it), and `handle` is what a test holds.
"""
