/* overtaken FILE, for one rank: writes many small pieces to the beginning, goes on with more behind them while these
 * come home, writes a part of the first ones again in one large independent write, and reads it together with the
 * last ones. Prints how many bytes are not the newest. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 100, FIRST = 20000, LATER = 400, AGAIN = 96 };

static MPI_File file;

static void put(int number, int value)
{
    char piece[PIECE];
    memset(piece, value, PIECE);
    MPI_File_write_at_all(file, (MPI_Offset)number * PIECE, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static char again[AGAIN * PIECE], found[(AGAIN + LATER) * PIECE];
    int old = 0;
    MPI_Init(&argc, &argv);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    const double begin = MPI_Wtime();
    for (int i = 0; i < FIRST; i++)
        put((int)(i * 7919L % FIRST), 1);
    while (MPI_Wtime() < begin + 0.95)
        usleep(1000);
    for (int i = 0; i < LATER; i++) {
        put(FIRST + i * 77 % LATER, 2);
        usleep(1000);
    }
    memset(again, 3, sizeof again);
    MPI_File_write_at(file, (MPI_Offset)(FIRST - AGAIN) * PIECE, again, sizeof again, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, (MPI_Offset)(FIRST - AGAIN) * PIECE, found, sizeof found, MPI_BYTE, MPI_STATUS_IGNORE);
    for (int i = 0; i < (int)sizeof found; i++)
        old += found[i] != (i < (int)sizeof again ? 3 : 2);
    MPI_File_close(&file);
    printf("%d\n", old);
    MPI_Finalize();
    return 0;
}
