"""What learns from runs."""
