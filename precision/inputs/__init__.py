"""Inputs: named distributions and captured tensors, drawn in float64 and rounded once."""
