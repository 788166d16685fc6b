"""Adversaries with a goal: studies of three real servers, one of which deviates, over several restarts."""
