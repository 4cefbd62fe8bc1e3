"""What several test modules share: servers and disks of their own, MPI, and data made by hand."""
