"""What an operator opens in a browser: pages over a server's admin API."""
