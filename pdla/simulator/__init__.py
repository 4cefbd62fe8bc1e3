"""The simulator: how long a program's accesses would take on a storage system, with every policy."""
