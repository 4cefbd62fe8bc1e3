"""bindings.F90 with mpi4py, whose calls are those of large counts where MPI has them: bindings.py DIRECTORY OUT."""

import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
directory, out = sys.argv[1:]
lines = []
data, more = np.empty(100, np.intc), np.empty(100, np.intc)
status = MPI.Status()


def open_file(name, amode):
    file = MPI.File.Open(world, f"{directory}/{name}", amode)
    filetype = MPI.INT.Create_contiguous(24).Create_resized(0, 384).Commit()
    file.Set_view(480 + 96 * world.rank, MPI.INT, filetype)
    filetype.Free()
    data[:], more[:] = -1, -1
    return file


def tell_memory(hazard):
    lines.append(f"{hazard} sum {data.tolist()} {more.tolist()}")
    lines.append(f"{hazard} position {file.Get_position()}")
    data[:], more[:] = -1, -1


def tell(hazard):
    lines.append(f"{hazard} count {status.Get_count(MPI.INT)} elements {status.Get_elements(MPI.INT)}")
    tell_memory(hazard)


def absolute():
    places = [MPI.Get_address(data[2:]), MPI.Get_address(more[49:])]
    return MPI.INT.Create_hindexed([10, 14], places).Commit()


def tell_size():
    world.Barrier()
    size = file.Get_size()
    file.Seek(0, MPI.SEEK_END)
    lines.append(f"45 size {size} end {file.Get_position()}")
    world.Barrier()
    file.Seek(0)


file = open_file("data", MPI.MODE_RDONLY)
file.Read([data, 48, MPI.INT], status)
tell(11)
file.Read_at(100, [data, 30, MPI.INT], status)
tell(11)
file.Read_at_all(200, [data, 90, MPI.INT], status)
tell(11)
file.Read_at(100000, [data, 30, MPI.INT], status)
data[:] = -1  # MPICH leaves something there
tell(11)
file.Read([data, 48, MPI.INT])
tell_memory(11)
file.Read_all([data, 48, MPI.INT])
tell_memory(11)

strided = MPI.INT.Create_vector(12, 2, 3).Commit()
file.Read_at_all(24, [data, 1, strided], status)
tell(9)
kept = absolute()
file.Read_at(5, [MPI.BOTTOM, 1, kept], status)
tell(9)
request = file.Iread_at(7, [MPI.BOTTOM, 1, kept])
kept.Free()
request.Wait(status)
tell(9)
strided.Free()

file.Iread_at(30, [data, 40, MPI.INT]).Wait(status)
tell(7)
MPI.Request.Waitall([file.Iread_at(31, [data, 40, MPI.INT]), file.Iread([more, 20, MPI.INT])])
tell_memory(7)
request = file.Iread_at(32, [data, 40, MPI.INT])
while not request.Test(status):
    pass
tell(7)
which = MPI.Request.Waitany([file.Iread_at_all(33, [data, 40, MPI.INT]), MPI.REQUEST_NULL], status)
lines.append(f"7 which {which}")
tell(7)

file.Read_all_begin([data, 48, MPI.INT])
file.Read_all_end(data, status)
tell(6)
file.Read_at_all_begin(500, [data, 48, MPI.INT])
file.Read_at_all_end(data)
tell_memory(6)

try:
    MPI.File.Open(world, f"{directory}/none", MPI.MODE_RDONLY)
except MPI.Exception as error:
    lines.append(f"17 missing {error.Get_error_class() == MPI.ERR_NO_SUCH_FILE}")
try:
    file.Read_at(-3, [data, 24, MPI.INT])
except MPI.Exception as error:
    lines.append(f"17 class {error.Get_error_class()}")
file.Read_at(3, [data, 24, MPI.INT], status)
tell(17)
file.Close()

file = open_file("written", MPI.MODE_CREATE | MPI.MODE_RDWR)
data[:] = 1000 * world.rank + np.arange(1, 101)
more[:] = -data
file.Write_all([data, 48, MPI.INT], status)
file.Write_at(48, [more, 24, MPI.INT])
file.Iwrite_at(72, [data, 24, MPI.INT]).Wait()
kept = absolute()
file.Write_at_all(96, [MPI.BOTTOM, 1, kept], status)
kept.Free()
file.Write_at_all_begin(120, [more, 72, MPI.INT])
file.Write_at_all_end(more)
data[:], more[:] = -1, -1
file.Read_at(40, [data, 96, MPI.INT], status)
tell(1)
file.Sync()
world.Barrier()
file.Sync()
lines.append(f"14 size {file.Get_size()}")
file.Close()
file = open_file("written", MPI.MODE_RDONLY)
file.Read_at_all(0, [data, 96, MPI.INT], status)
tell(1)
file.Close()

file = open_file("grown", MPI.MODE_CREATE | MPI.MODE_RDWR)
data[:] = 2000 * world.rank + np.arange(1, 101)
more[:] = -data
file.Write_at_all(0, [data, 96, MPI.INT], status)
file.Write_at_all_begin(96, [data, 96, MPI.INT])
file.Write_at_all_end(data)
tell_size()
time.sleep(0.1)  # the first bytes may go home
file.Write_at_all(24, [more, 96, MPI.INT], status)
data[:], more[:] = -1, -1
file.Read_at(12, [data, 96, MPI.INT], status)
tell(49)
tell_size()
file.Close()
file = open_file("grown", MPI.MODE_RDONLY)
tell_size()
file.Read_all([data, 96, MPI.INT], status)
tell(49)
file.Close()
with open(f"{out}.{world.rank}", "w") as seen:  # noqa: PTH123
    seen.write("\n".join(lines) + "\n")
