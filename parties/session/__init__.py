"""State of one attempt at a run that all methods share: owners, enrollment, operators' commands, results."""
