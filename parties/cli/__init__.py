"""The `syncret` command; each module is imported when one of its commands is used."""
