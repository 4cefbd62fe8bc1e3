"""Plans and policies."""
