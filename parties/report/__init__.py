"""The report of a run: its content, its HTML page and its pictures."""
