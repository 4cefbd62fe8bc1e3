"""Shared by several test modules: private servers and disks, MPI, and data made by hand."""
