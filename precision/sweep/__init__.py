"""From a configuration to rows: the grid of cases, and the one place that runs backends."""
