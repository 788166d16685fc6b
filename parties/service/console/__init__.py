"""Web console for operators: pages over a server's admin API."""
