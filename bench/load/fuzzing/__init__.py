"""Damaged messages and files for everything that reads what somebody else has made."""
