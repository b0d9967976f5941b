"""What a run leaves behind: rows, their columns, and the store that keeps them. Imports no torch."""
