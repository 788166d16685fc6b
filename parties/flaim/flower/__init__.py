"""FLAIM as an app of Flower: the same messages, over a grid of SuperNodes instead of TLS connections."""
