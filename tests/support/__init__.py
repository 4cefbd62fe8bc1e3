"""Shared by several test modules: servers, disks and MPI, programs and how they are run, data made by hand."""
