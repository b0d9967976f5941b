"""Why a kernel is off: which plan it behaves like, which stage costs what, and where a value first failed."""
