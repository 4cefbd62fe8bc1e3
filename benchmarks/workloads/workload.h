/* What all workloads share. A workload defines which pieces of a file a task accesses. workload.c
 * reads or writes them through MPI-IO, checks every byte, and prints a line of JSON. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <mpi.h>
#include <stddef.h>

struct option {
    const char *name; /* as in the original, without dashes */
    long long *value; /* set to the number after it, which may end in k, m or g; a flag's is set to 1 */
    int flag;
};

/* The pieces of one task, in order. */
struct access {
    long long pieces, length; /* bytes of a piece, or of the longest one; a multiple of 8 */
    MPI_Offset (*offset)(long long piece);
    MPI_Datatype view; /* the same as a file type, from byte `displacement` on; MPI_DATATYPE_NULL if there is none */
    MPI_Offset displacement;
    long long (*bytes)(long long piece); /* of a piece, if they differ; NULL: `length` */
};

struct program {
    const struct option *options; /* its own, ended by one without a name */
    int views_only;               /* it always accesses the file through a view */
    void (*divide)(long long task, long long tasks, struct access *access);
};

/* Runs the program. Returns its exit code: 1 if a byte was wrong, 2 for a wrong command line. */
int workload_main(int argc, char **argv, const struct program *program);

/* The view of a task whose blocks take turns with those of all others: `block_bytes`, and then those of the others. */
MPI_Datatype workload_turns(long long block_bytes, long long tasks);

/* The rows of a part of a 3-D array in C order, of elements of `element` bytes, array after array. */
void workload_block(const long long sizes[3], const long long parts[3], const long long starts[3], long long element,
                    long long steps, MPI_Offset displacement, struct access *access);

/* The place of `task` in the grid of MPI_Dims_create, and its part of a cube of `size`. Ends the
 * program if the grid does not divide the cube. */
void workload_cube(long long task, long long tasks, long long size, long long parts[3], long long starts[3]);

/* Ends the program with exit code 2 and one line, unless the condition is true. */
void workload_require(int truth, const char *what);

#endif
