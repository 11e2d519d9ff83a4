"""What may race, by what the recording shows."""
