"""What `flwr run` sends to a fleet; the app itself is in the syncret that is installed there."""
