"""The program of probe.c with mpi4py, for an MPI without a compiler: python probe.py FILE."""

import os
import signal
import sys
from pathlib import Path

from mpi4py import MPI

signal.alarm(30)
world = MPI.COMM_WORLD
version = MPI.Get_library_version().split("\n")[0].split(",")[0]
preloaded = "libpdla.so" in os.environ.get("LD_PRELOAD", "")
shared = "/libmpi" in Path("/proc/self/maps").read_text()
line = f"probe {world.rank} {world.size} {preloaded:d} {shared:d} {MPI.VERSION} {version}\n"
os.write(sys.stdout.fileno(), line.encode())  # in one write, so that the lines of two ranks do not mix

data = bytearray((i * 2 + world.rank) % 256 for i in range(112))
got = bytearray(112)
file = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
filetype = MPI.BYTE.Create_contiguous(8).Create_resized(0, 16).Commit()
file.Set_view(8 * world.rank, MPI.BYTE, filetype)
file.Write_at_all(0, data[:32])
file.Write_at(32, data[32:48])
file.Iwrite_at(48, data[48:64]).Wait()
file.Seek(64)
file.Write(data[64:80])
last = data[80:96]
file.Write_all_begin(last)
file.Write_all_end(last)
file.Write_at(96, data[96:112])
file.Sync()
part = memoryview(got)
file.Read_at_all(0, part[:32])
file.Read_at(32, part[32:48])
file.Iread_at(48, part[48:64]).Wait()
file.Close()
sys.exit(got[:64] != data[:64])
