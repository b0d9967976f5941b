"""Attention with the format of every stage chosen: what a kernel rounds, as a plan that can be run."""
