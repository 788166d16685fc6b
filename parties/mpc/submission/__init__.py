"""The data owner's program: preview, sealed upload, delivery, status, resubmission, withdrawal."""
