"""Events, status, heartbeats, logs, traces and causes of failure, for operators and progress displays."""
