/* Nanoseconds of CPU of a call, the least of 5 rounds of 200,000 reads of 512 B: of a file that MPI
 * did not open, and of one that it did, by pread() and by MPI_File_read_at(). Usage: posix FILE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, CALLS = 200000, BLOCKS = 2048, BLOCK = 512 };

static char block[BLOCK];
static MPI_File file;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* By MPI if there is no descriptor. */
static double nanoseconds(int descriptor)
{
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double start = cpu_seconds();
        for (int i = 0; i < CALLS; i++) {
            off_t offset = (off_t)(i % BLOCKS) * BLOCK;
            if (descriptor < 0)
                MPI_File_read_at(file, offset, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
            else if (pread(descriptor, block, BLOCK, offset) != BLOCK)
                return -1;
        }
        double each = (cpu_seconds() - start) / CALLS * 1e9;
        least = each < least ? each : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    char other[4096];
    MPI_Init(&argc, &argv);
    snprintf(other, sizeof other, "%s.other", argv[1]);
    int descriptors[2] = {open(other, O_CREAT | O_RDWR, 0600), open(argv[1], O_CREAT | O_RDWR, 0600)};
    for (int i = 0; i < 2; i++)
        if (ftruncate(descriptors[i], BLOCKS * BLOCK) != 0)
            return 1;
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    double unseen = nanoseconds(descriptors[0]), seen = nanoseconds(descriptors[1]), inside = nanoseconds(-1);
    printf("%.1f %.1f %.1f\n", unseen, seen, inside);
    MPI_File_close(&file);
    MPI_Finalize();
    unlink(other);
    return 0;
}
