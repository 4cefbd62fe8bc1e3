"""The notebooks."""
