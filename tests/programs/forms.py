"""forms.c with mpi4py."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
filetype = MPI.INT.Create_contiguous(2).Create_resized(0, 16).Commit()
file.Set_view(16 + 8 * world.rank, MPI.INT, filetype)
filetype.Free()
calls = iter(range(1, 11))
data = np.empty(4, dtype=np.intc)


def ints():
    return np.arange(4, dtype=np.intc) + 1000 * next(calls)


file.Write(ints())
file.Write_all(ints())
file.Write_at(8, ints())
file.Write_at_all(12, ints())
file.Iwrite(ints()).Wait()
file.Iwrite_all(ints()).Wait()
file.Iwrite_at(16, ints()).Wait()
file.Iwrite_at_all(20, ints()).Wait()
file.Write_all_begin(last := ints())
file.Write_all_end(last)
file.Write_at_all_begin(24, last := ints())
file.Write_at_all_end(last)
world.Barrier()
file.Seek(0)
file.Read(data)
file.Read_all(data)
file.Read_at(8, data)
file.Read_at_all(12, data)
file.Iread(data).Wait()
file.Iread_all(data).Wait()
file.Iread_at(16, data).Wait()
file.Iread_at_all(20, data).Wait()
file.Read_all_begin(data)
file.Read_all_end(data)
file.Read_at_all_begin(24, data)
file.Read_at_all_end(data)
file.Seek(2, MPI.SEEK_CUR)
file.Read_at(26, data)
file.Close()
