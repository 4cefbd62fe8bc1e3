/* MPI-Tile-IO: a task accesses its tile of a dense 2-D data set. Tiles may overlap; the options are
 * those of the original. */
#include "workload.h"

static long long tiles_x = 2, tiles_y = 2, tile_x = 64, tile_y = 64, element = 1024, overlap_x, overlap_y, header;

static void divide(long long task, long long tasks, struct access *access)
{
    const long long step_x = tile_x - overlap_x, step_y = tile_y - overlap_y;
    const long long sizes[3] = {1, step_y * (tiles_y - 1) + tile_y, step_x * (tiles_x - 1) + tile_x};
    const long long parts[3] = {1, tile_y, tile_x};
    const long long starts[3] = {0, task / tiles_x * step_y, task % tiles_x * step_x};
    workload_require(tasks == tiles_x * tiles_y, "there must be as many tasks as tiles");
    workload_block(sizes, parts, starts, element, 1, header, access);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"nr_tiles_x", &tiles_x, 0},  {"nr_tiles_y", &tiles_y, 0},  {"sz_tile_x", &tile_x, 0},
        {"sz_tile_y", &tile_y, 0},    {"sz_element", &element, 0},  {"overlap_x", &overlap_x, 0},
        {"overlap_y", &overlap_y, 0}, {"header_bytes", &header, 0}, {NULL, NULL, 0}};
    return workload_main(argc, argv, &(struct program){options, 1, divide});
}
