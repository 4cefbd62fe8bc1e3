"""The redirection library."""
