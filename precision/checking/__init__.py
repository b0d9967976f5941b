"""`precision check`: whether an attention kernel is right to within its format, and if not, where it goes wrong."""
