"""The auditor: proofs from three transcripts and public certificates, check by check, without any secret."""
