"""The dataset "rows" of hdf5.c with h5py: hdf5.py FILE, for 2 ranks."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
with h5py.File(sys.argv[1], "w", driver="mpio", comm=MPI.COMM_WORLD) as file:
    rows = file.create_dataset("rows", (8, 12), dtype=np.intc)
    with rows.collective:
        rows[:4, rank::2] = np.full((4, 6), rank + 1, dtype=np.intc)
    rows[4 + 2 * rank : 6 + 2 * rank] = np.full((2, 12), rank + 1, dtype=np.intc)
