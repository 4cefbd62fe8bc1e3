"""The core that decides while programs run."""
