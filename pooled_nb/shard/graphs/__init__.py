"""A stage's frames on an accelerator: fixed shapes over buffers that stay, recorded once as CUDA graphs."""

from pooled_nb.shard.graphs.recorder import NoGraph, Recorder, recorder_for
from pooled_nb.shard.graphs.segment import Segment

__all__ = ["NoGraph", "Recorder", "Segment", "recorder_for"]
