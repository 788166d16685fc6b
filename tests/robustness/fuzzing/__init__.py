"""Damaged messages and files for every reader of input from others."""
