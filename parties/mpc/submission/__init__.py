"""The participant's program: preview, sealed upload, delivery, status, resubmission, withdrawal."""
