/* Reads or writes pieces of a file in a random order, shared out to the ranks: random_pieces FILE
 * read|write PIECE COUNT HOT [in-order]. Each piece is accessed once, those before HOT four times.
 * Rank 0 prints a checksum of all pieces of a read, and on standard error the seconds from before
 * the open until after the close. In order, each rank accesses one part of the file. */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1;

static uint64_t pick(uint64_t below)
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (z ^ (z >> 27)) % below;
}

static uint64_t hash_of(const unsigned char *bytes, int length, uint64_t piece)
{
    uint64_t hash = piece + 5381;
    for (int i = 0; i < length; i++)
        hash = hash * 33 + bytes[i];
    return hash;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int writes = strcmp(argv[2], "write") == 0;
    const int length = atoi(argv[3]), count = atoi(argv[4]), hot = atoi(argv[5]);
    const int accesses = count + 3 * hot, in_order = argc > 6, share = (count + ranks - 1) / ranks;
    int *order = malloc((size_t)accesses * sizeof *order);
    unsigned char *piece = malloc((size_t)length);
    for (int i = 0; i < accesses; i++)
        order[i] = i < count ? i : (i - count) % hot;
    for (int i = accesses - 1; i > 0; i--) {
        const int other = (int)pick((uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < count && in_order; i++)
        order[i] = i % ranks * share + i / ranks < count ? i % ranks * share + i / ranks : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    const int mode = writes ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file) != MPI_SUCCESS)
        MPI_Abort(MPI_COMM_WORLD, 3);
    uint64_t mine = 0, all = 0;
    for (int i = rank; i < accesses; i += ranks) {
        const MPI_Offset at = (MPI_Offset)order[i] * length;
        for (int k = 0; k < length && writes; k++)
            piece[k] = (unsigned char)(order[i] * 31 + k * 7 + k / 256);
        if (writes)
            MPI_File_write_at(file, at, piece, length, MPI_BYTE, MPI_STATUS_IGNORE);
        else
            MPI_File_read_at(file, at, piece, length, MPI_BYTE, MPI_STATUS_IGNORE);
        mine += writes ? 0 : hash_of(piece, length, (uint64_t)order[i]);
    }
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        fprintf(stderr, "%.6f\n", MPI_Wtime() - begin);
    MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && !writes)
        printf("%llx\n", (unsigned long long)all);
    free(order);
    free(piece);
    MPI_Finalize();
    return 0;
}
