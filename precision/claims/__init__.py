"""What people say of 1/sqrt(d_k): each sentence an experiment, its verdict computed from what was measured."""
