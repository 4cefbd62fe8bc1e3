"""slabs: a 3-D array of floats in one file, read slab by slab with mpi4py; each rank wants its part of every row.

    mpiexec -n 4 python slabs.py array.dat 64 1024 1024

The array has NZ x NY x NX elements. For each z all ranks together read the slab z, collectively through a subarray view
that selects the rank's range of x: NY pieces of NX/ranks elements each. Rank 0 prints, for every rank, how many bytes
it received and their CRC-32, in the order received.
"""

import sys
import zlib

from mpi4py import MPI

FLOAT_BYTES = 4


def main(path: str, nz: int, ny: int, nx: int) -> None:
    """Read the array in ``path`` and print what every rank received."""
    world = MPI.COMM_WORLD
    first, stop = nx * world.rank // world.size, nx * (world.rank + 1) // world.size
    view = MPI.FLOAT.Create_subarray([nz, ny, nx], [nz, ny, stop - first], [0, 0, first]).Commit()
    slab = bytearray(FLOAT_BYTES * ny * (stop - first))

    file = MPI.File.Open(world, path, MPI.MODE_RDONLY)
    if file.Get_size() < nz * FLOAT_BYTES * ny * nx:
        sys.exit(f"slabs: {path} has {file.Get_size()} bytes, too few for {nz} x {ny} x {nx} floats")
    file.Set_view(0, MPI.FLOAT, view)
    received = crc = 0
    for _ in range(nz):
        file.Read_all([slab, MPI.FLOAT])
        received += len(slab)
        crc = zlib.crc32(slab, crc)
    file.Close()
    view.Free()

    for rank, (count, value) in enumerate(world.gather((received, crc)) or ()):
        print(f"slabs: rank {rank} received {count} bytes, crc {value:08x}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: slabs.py ARRAY NZ NY NX")
    main(sys.argv[1], *map(int, sys.argv[2:]))
