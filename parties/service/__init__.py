"""The service of studies: API, console, reconciliation between servers, workers, backup and retention."""
