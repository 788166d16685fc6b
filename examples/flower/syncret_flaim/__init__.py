"""The package that `flwr run` sends to a fleet; the app itself is in the syncret installed there."""
