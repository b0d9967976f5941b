"""The ledger: one file a claim or a family of claims; a file here registers its claims when imported."""
