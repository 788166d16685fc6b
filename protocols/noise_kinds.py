"""Names of the kinds of noise that `protocols.measure` makes."""

DISCRETE, BOX_MULLER, DISTRIBUTED = "discrete-gaussian", "box-muller", "distributed"
NOISES = (DISCRETE, BOX_MULLER, DISTRIBUTED)
