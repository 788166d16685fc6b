"""The auditor: verification of a run from its transcripts and public certificates, without any secret."""
