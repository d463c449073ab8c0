"""The version, in one place: the build reads it, and so does `pooled_nb.__version__`."""

__version__ = "0.1.0"
