"""Fed-TDA: a synthetic table from federated statistics, every one of them a sum over silos.

Variational Gaussian mixtures of the continuous columns (`mixture`), normal scores of the discrete ones (`icdm`), the
covariance of all of them (`covariance`), and rows drawn from a Gaussian copula (`model`). Sums are those of
`mechanisms.silos`; `server` and `silo` are its two sides.

Source: Fed-TDA (federated tabular data augmentation). Deviations and errata: the package's README, "Fed-TDA".
"""
