/* Finds out what the running MPI takes MPI_SEEK_SET and MPI_SEEK_END to be. */
#include <pthread.h>

#include "running_mpi.h"

int seek_set, seek_end; /* change in learn_whence() only, before there is a file handle */

enum { ABI_RDONLY = 16, ABI_FIRST = 401, ABI_LAST = 403 };

/* Where two steps of one byte by `whence` lead in a file of this process; -1: they fail. */
static mpi_offset place_after(int whence)
{
    const struct mpi *mpi = running_mpi();
    mpi_handle file = mpi->file_null;
    mpi_offset place;
    if (mpi->File_open(mpi->comm_self, "/proc/self/exe", ABI_RDONLY, mpi->info_null, &file) != 0)
        return -1;
    if (mpi->File_seek(file, 1, whence) != 0 || mpi->File_seek(file, 1, whence) != 0
        || mpi->File_get_position(file, &place) != 0)
        place = -1;
    mpi->File_close(&file);
    return place;
}

/* RATIONALE: the standard says 401 for MPI_SEEK_CUR, 402 for MPI_SEEK_END and 403 for MPI_SEEK_SET.
 * Intel MPI 2021.18 and 2021.19 take 401, 402 and 403 for SET, CUR and END. A pointer that is moved
 * by the wrong one reads wrong bytes, so the values are those that MPI obeys. */
static bool try_all(void)
{
    for (int whence = ABI_FIRST; whence <= ABI_LAST; whence++) {
        const mpi_offset place = place_after(whence);
        if (place == 1)
            seek_set = whence;
        else if (place > 2)
            seek_end = whence;
    }
    return seek_set != 0 && seek_end != 0;
}

bool learn_whence(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool known;
    pthread_mutex_lock(&mutex);
    if (!known && running_mpi()->family == MPI_FAMILY_ABI) {
        known = try_all();
    } else if (!known) {
        seek_set = 600;
        seek_end = 604;
        known = true;
    }
    pthread_mutex_unlock(&mutex);
    return known;
}
