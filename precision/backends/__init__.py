"""Backends: the ways to compute attention that the suite compares. One file a family."""
