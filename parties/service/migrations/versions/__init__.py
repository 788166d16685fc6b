"""The steps; a new one is a new module, and a step that was released is never changed."""
