"""Methods on top of `mpc` and `federation`: FLAIM, Fed-TDA, MR-MTL, and the reports of all methods."""
