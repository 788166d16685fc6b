"""`syncret bench mtl`: personalised models with silo-specific privacy, on School and on a simulated pandemic."""
