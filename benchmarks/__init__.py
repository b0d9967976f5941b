"""Benchmarks over history, for asv and for `pytest --benchmark-only`.

asv runs these files, as they are now, against the package of older commits: they use its stable names only.
"""

import os

# One thread, for steadier figures on shared machines. It has to be said before torch is imported; asv imports
# this package first. Set the variables to have it otherwise.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
