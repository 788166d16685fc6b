"""Migration steps. A new step is a new module; a released step never changes."""
