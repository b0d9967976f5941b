"""History: what asv, pytest-benchmark and the store know of older commits, in one table, with gates and plots."""
