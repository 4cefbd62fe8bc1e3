/* What a user-level burst buffer gets wrong: bursts FILE STEP. Rank 0 prints how many words of the files are wrong.
 *   interleave  every rank writes its words between those of the others, by one strided view
 *   shared      every rank writes blocks by the shared file pointer, in whatever order
 *   dumps       all ranks write checkpoint after checkpoint, each into a file of its own, some of them longer
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 5000, BLOCK = 1024, BLOCKS = 4, DUMPS = 6, PIECES = 5, PIECE = 10000 };

static int rank, ranks;

static MPI_File open_file(const char *path, int mode)
{
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
        fprintf(stderr, "cannot open %s\n", path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return file;
}

/* A file of `count` words, read by every rank. NULL: the file has another size. */
static int *words_of(const char *path, int count)
{
    MPI_File file = open_file(path, MPI_MODE_RDONLY);
    MPI_Offset size;
    int *words = malloc((size_t)count * sizeof *words);
    MPI_File_get_size(file, &size);
    MPI_File_read_all(file, words, count, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    if (size == count * (MPI_Offset)sizeof *words)
        return words;
    fprintf(stderr, "%s has %lld bytes\n", path, (long long)size);
    free(words);
    return NULL;
}

static int interleave(const char *path)
{
    MPI_File file = open_file(path, MPI_MODE_CREATE | MPI_MODE_WRONLY);
    MPI_Datatype strided;
    int mine[WORDS], wrong = 0;
    MPI_Type_vector(WORDS, 1, ranks, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    MPI_File_set_view(file, rank * (MPI_Offset)sizeof(int), MPI_INT, strided, "native", MPI_INFO_NULL);
    for (int i = 0; i < WORDS; i++)
        mine[i] = i + rank * WORDS;
    MPI_File_write(file, mine, WORDS / 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_write_all(file, mine + WORDS / 2, WORDS - WORDS / 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&strided);
    int *words = words_of(path, WORDS * ranks);
    for (int i = 0; words != NULL && i < WORDS * ranks; i++)
        wrong += words[i] != i / ranks + i % ranks * WORDS;
    free(words);
    return words == NULL ? -1 : wrong;
}

static int shared(const char *path)
{
    MPI_File file = open_file(path, MPI_MODE_CREATE | MPI_MODE_RDWR);
    int block[BLOCK], *seen = calloc((size_t)(ranks * BLOCKS), sizeof *seen), wrong = 0;
    for (int number = 0; number < BLOCKS; number++) {
        for (int i = 0; i < BLOCK; i++)
            block[i] = rank * BLOCKS + number;
        MPI_File_write_shared(file, block, BLOCK, MPI_INT, MPI_STATUS_IGNORE);
    }
    MPI_File_close(&file);
    int *words = words_of(path, BLOCK * BLOCKS * ranks);
    for (int at = 0; words != NULL && at < ranks * BLOCKS; at++)
        for (int i = 0; i < BLOCK; i++) {
            int value = words[at * BLOCK + i];
            if (value < 0 || value >= ranks * BLOCKS || value != words[at * BLOCK])
                wrong++;
            else
                seen[value]++;
        }
    for (int value = 0; value < ranks * BLOCKS; value++)
        wrong += abs(seen[value] - BLOCK);
    free(seen);
    free(words);
    return words == NULL ? -1 : wrong;
}

static int value_of(int dump, int place) { return dump * 1000003 + place; }

/* The pieces of the ranks alternate; every second dump is longer. */
static int dumps(const char *path)
{
    char name[4096];
    int *piece = malloc(PIECE * sizeof *piece), wrong = 0;
    for (int dump = 0; dump < DUMPS; dump++) {
        snprintf(name, sizeof name, "%s.%d", path, dump);
        MPI_File file = open_file(name, MPI_MODE_CREATE | MPI_MODE_WRONLY);
        MPI_File_set_size(file, 0);
        for (int turn = 0; turn < PIECES + dump % 2; turn++) {
            int first = (turn * ranks + rank) * PIECE;
            for (int i = 0; i < PIECE; i++)
                piece[i] = value_of(dump, first + i);
            MPI_File_write_at_all(file, first * (MPI_Offset)sizeof *piece, piece, PIECE, MPI_INT, MPI_STATUS_IGNORE);
        }
        MPI_File_close(&file);
    }
    free(piece);
    for (int dump = 0; dump < DUMPS; dump++) {
        snprintf(name, sizeof name, "%s.%d", path, dump);
        const int count = (PIECES + dump % 2) * ranks * PIECE;
        int *words = words_of(name, count);
        for (int i = 0; words != NULL && i < count; i++)
            wrong += words[i] != value_of(dump, i);
        wrong += words == NULL;
        free(words);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int wrong = argc != 3 ? -1
        : strcmp(argv[2], "interleave") == 0 ? interleave(argv[1])
        : strcmp(argv[2], "shared") == 0 ? shared(argv[1])
        : dumps(argv[1]);
    int all;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d wrong\n", all);
    MPI_Finalize();
    return 0;
}
