"""The report of a run: a Markdown and an HTML page from one context, their figures, the rows. Imports no torch."""
