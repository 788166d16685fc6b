"""What operators run and look at: status, metrics, health, the service and its page."""
