/* Reads of 512 B by one rank, one after another or at random, in a sparse file. Prints the
 * nanoseconds of CPU of a call (the least of rounds of 20,000), the largest resident set in KiB,
 * and the clock before MPI_Finalize. Usage: inline FILE CALLS strided
 *
 * random */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUND = 20000, BLOCKS = 2048, BLOCK = 512 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* RATIONALE: ru_maxrss also counts the memory of the process before it became this program. */
static long resident_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "VmHWM: %ld", &kib);
    if (status)
        fclose(status);
    return kib;
}

int main(int argc, char **argv)
{
    static char block[BLOCK];
    const long calls = atol(argv[2]);
    const int random = strcmp(argv[3], "random") == 0;
    const MPI_Offset size = (MPI_Offset)1 << 34;
    double least = 1e9;
    uint64_t state = 1;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_size(file, size + BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        MPI_File_write_at(file, (MPI_Offset)i * 2 * BLOCK, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
    for (long done = 0; done < calls; done += ROUND) {
        double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
        for (int i = 0; i < ROUND; i++) {
            MPI_Offset offset = (MPI_Offset)(i % BLOCKS) * 2 * BLOCK;
            state = state * 6364136223846793005 + 1442695040888963407; /* Knuth's MMIX generator */
            if (random)
                offset = (MPI_Offset)(state >> 33) * 8;
            MPI_File_read_at(file, offset, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
        }
        double each = (seconds(CLOCK_PROCESS_CPUTIME_ID) - start) / ROUND * 1e9;
        least = each < least ? each : least;
    }
    MPI_File_close(&file);
    printf("%.1f %ld %.9f\n", least, resident_kib(), seconds(CLOCK_MONOTONIC));
    MPI_Finalize();
    return 0;
}
