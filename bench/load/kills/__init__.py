"""Every step of every server, with every fault: what becomes of the run."""
