"""Adversaries that want something: studies of three real servers, one of which deviates, over several restarts."""
