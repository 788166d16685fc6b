"""What a server that deviates can do: attacks on small runs of the protocols, in both security modes."""
