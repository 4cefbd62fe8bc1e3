"""What costs time in a run."""
