"""DP-CTGAN, central and federated: the baseline of the FLAIM paper's Table 1 that is no marginal method."""
