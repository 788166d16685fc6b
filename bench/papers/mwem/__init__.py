"""DistMWEM: MWEM by three servers on shares, on a small domain, beside MWEM and AIM in the clear."""
