"""Weights between the devices of a room (PROTOCOL section 6, ``ai-inv`` to ``nb-hash``; DESIGN section 6).

`urls` names files, `inventory` ranges, `hashes` what they must be; `giving` answers who asks for them.
`hostside` and `deviceside` are what a room has of it. `runner` keeps the disk off the mesh loop.
"""
