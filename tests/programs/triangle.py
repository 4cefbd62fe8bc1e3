"""triangle MATRIX N: ranks read the lower triangle of an N x N matrix of floats, row by row in turn, then pieces of it.

First each rank reads every row of its own up to the diagonal, in one call that is longer from row to row. Then all
together read, in each band of 32 rows, one row each: a piece of 16 floats out of every 32 up to the diagonal, one more
from band to band.
"""

import sys
import zlib

import numpy as np
from mpi4py import MPI

PIECE, BAND = 16, 32

path, side = sys.argv[1], int(sys.argv[2])
world = MPI.COMM_WORLD
file = MPI.File.Open(world, path, MPI.MODE_RDONLY)
received = crc = 0


def take(data: np.ndarray) -> None:
    """Counts what was read."""
    global received, crc
    received, crc = received + data.nbytes, zlib.crc32(data, crc)


for row in range(world.rank, side, world.size):
    data = np.empty(row + 1, dtype=np.float32)
    file.Read_at(row * side * 4, data)
    take(data)
piece = np.empty(PIECE, dtype=np.float32)
for band in range(side // BAND):
    for number in range(band + 1):
        file.Read_at_all(((band * BAND + world.rank) * side + number * BAND) * 4, piece)
        take(piece)
file.Close()
for rank, (count, value) in enumerate(world.gather((received, crc)) or ()):
    print(f"triangle: rank {rank} received {count} bytes, crc {value:08x}")
