"""Rooms in a terminal: what the commands of ``pooled-nb`` do once the arguments are read.

`arguments` reads them; `staying` is host and join, `converse` the prompt in them, `deeds` what both do in
a room; `asking` is ask, `rooms_here` status, `serving` signal. `screen` prints.
"""
