"""A study on three services that meets eight faults in a random order, and ends audited."""
