"""Constraints between the columns of a table: derived columns, order, sums, forbidden combinations, one-hot groups.

A constraint is ``[[constraint]]`` in a configuration. Three things follow from it:

1. a column that follows from others (``derived``) is not modelled, but computed in every row;
2. what else cannot be (``relations``) is a structural zero of the model, on a clique that its junction tree contains,
   and no value is drawn within a cell that contradicts it (``rows``);
3. an owner's program refuses rows that contradict it, or repairs them (``checking``).

All declared constraints are public. Rows that are checked are secret, at their owner.
"""
