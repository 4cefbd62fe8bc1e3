"""What a change of the documentation alone needs."""
