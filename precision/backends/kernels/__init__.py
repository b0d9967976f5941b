"""Kernels of our own, in languages of their own. Imported by their backends only when they run."""
