"""Notebooks in a real JupyterLab, in Chromium."""
