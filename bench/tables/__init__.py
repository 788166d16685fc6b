"""Tables with keys, persons and their rows: made by Syncret and others, measured beside the same table flattened."""
