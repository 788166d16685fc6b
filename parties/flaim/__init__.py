"""FLAIM as deployed: a server and its clients over mutual TLS, on hosts of their own, on one, or in one process."""
