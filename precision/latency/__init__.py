"""Latency: sampled fairly, compared with intervals, and set against what the machine can do."""
