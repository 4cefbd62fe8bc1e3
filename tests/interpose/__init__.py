"""MPI libraries and launchers, whatever is preloaded."""
