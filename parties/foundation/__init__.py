"""Small modules used by all of `parties`: errors, exit statuses, versions, untrusted text, this process."""
