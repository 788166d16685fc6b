"""Differential privacy and synthesis, without cryptography.

The package has domains and tables, workloads and their counts, budgets, selection scores, Private-PGM models, the AIM
loop of Algorithms 2 and 3 of the FLAIM paper, FLAIM, Fed-TDA, MR-MTL, and measures of the result. Cryptography is
reached only through the interface ``aim.Backend``.
"""
