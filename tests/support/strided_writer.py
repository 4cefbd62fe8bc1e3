"""A program in Python that writes pieces, rank by rank, and what it writes."""

from __future__ import annotations

RANKS, PIECES, PIECE = 4, 32, 4096

# Every rank writes a piece of each row; the bytes differ from run to run. It exits with the code; if `early` is 1, each
# rank reads what its neighbour has written, after a barrier only.
STRIDED = """
import sys
from mpi4py import MPI
path, seed, code, early = sys.argv[1], *map(int, sys.argv[2:])
world = MPI.COMM_WORLD
file = MPI.File.Open(world, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
for row in range(32):
    file.Write_at(4096 * (row * world.size + world.rank), bytes([seed + world.rank + row]) * 4096)
world.Barrier()
if early:
    file.Read_at(4096 * ((world.rank + 1) % world.size), bytearray(4096))
file.Close()
MPI.Finalize()
sys.exit(code)
"""


def expected(seed: int) -> bytes:
    """What the program writes."""
    return b"".join(bytes([seed + rank + row]) * PIECE for row in range(PIECES) for rank in range(RANKS))
