/* Reads eight bytes by the calls of unknown_mpi.c and prints them. Usage: other_mpi FILE */
#include <stdio.h>

int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Comm_rank(int, int *);
int MPI_File_open(int, const char *, int, int, int *), MPI_File_close(int *);
int MPI_File_read_at(int, long long, void *, int, int, int *);

int main(int argc, char **argv)
{
    char bytes[9] = "";
    int rank, file, status;
    if (argc < 2 || MPI_Init(NULL, NULL) != 0 || MPI_Comm_rank(1, &rank) != 0)
        return 1;
    if (MPI_File_open(1, argv[1], 77, 0, &file) != 0 || MPI_File_read_at(file, 3, bytes, 8, 9, &status) != 0)
        return 2;
    printf("%d %s\n", status, bytes);
    return MPI_File_close(&file) || MPI_Finalize();
}
