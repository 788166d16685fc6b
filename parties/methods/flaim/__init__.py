"""FLAIM as deployed: its server, its client, its Flower app and its report."""
