/* The parts of the redirector that need no MPI, driven from the command line:
 *   locate MAP            reads lines "replica start stop"; prints "offset length replica_offset" or "-"
 *   strip MAP             reads lines "replica offset"; prints "component offset length"
 *   fuzz MAP SEED COUNT   damages the map COUNT times and uses maps that are still accepted; prints how many
 *   flips MAP             flips each bit of the map in turn; prints how many of these maps are accepted
 *   use MAP NUMBER        opens the map, looks at the entry of a file, and opens the map again: what each open says
 *   find MAP PATH DEVICE:INODE  prints "found" or "-"
 *   check MAP FILE        prints whether FILE is as it was copied, by the map, and the mark of its replica
 *   killed MAP            a process that is about to write a replica's bytes is killed
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../replicator/stub/locate.h"
#include "../../replicator/stub/freshness.h"
#include "damaged_maps.h"

static char *read_whole(const char *path, size_t *size)
{
    FILE *in = fopen(path, "rb");
    char *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, in);
    fclose(in);
    return bytes;
}

static const struct loaded_map *checked(const char *path)
{
    size_t size;
    const char *base = read_whole(path, &size), *why;
    const struct loaded_map *map = map_of(base, size, &why);
    if ((why = problem_of(map, why)) != NULL) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    return map;
}

static int answer_locate(const char *path)
{
    const struct loaded_map *map = checked(path);
    unsigned replica;
    int64_t start, stop;
    while (scanf("%u %" SCNd64 " %" SCNd64, &replica, &start, &stop) == 3) {
        struct piece piece;
        if (locate_piece(map, &map->replicas[replica], start, stop, &piece))
            printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", piece.offset, piece.length, piece.replica_offset);
        else
            puts("-");
    }
    return 0;
}

static int answer_strip(const char *path)
{
    const struct loaded_map *map = checked(path);
    unsigned replica;
    int64_t offset;
    while (scanf("%u %" SCNd64, &replica, &offset) == 2) {
        struct strip strip = locate_strip(map, &map->replicas[replica], offset);
        printf("%u %" PRId64 " %" PRId64 "\n", strip.component, strip.offset, strip.length);
    }
    return 0;
}

static int find(const char *map_path, const char *path, const char *numbers)
{
    const struct loaded_map *map = checked(map_path);
    unsigned long long device, inode;
    if (sscanf(numbers, "%llu:%llu", &device, &inode) != 2)
        return 2;
    puts(map_find(map, path, device, inode) != NULL ? "found" : "-");
    return 0;
}

static uint64_t random_state;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void damage(char *base, size_t size)
{
    static const int64_t odd[] = {0, 1, -1, 2, 7, 8, INT64_MAX, INT64_MIN, UINT32_MAX, INT32_MAX, INT64_MAX - 7,
                                  1 << 20, 4096};
    int64_t value = odd[random_number() % (sizeof odd / sizeof *odd)];
    switch (random_number() % 4) {
    case 0:
        base[random_number() % size] ^= (char)(1 << random_number() % 8);
        break;
    case 1:
        base[random_number() % size] = (char)random_number();
        break;
    case 2:
        memcpy(base + random_number() % (size / 4) * 4, &value, 4);
        break;
    default:
        memcpy(base + random_number() % (size / 8) * 8, &value, 8);
    }
}

/* Of an original with `original` bytes, or of a target. */
static void use_replica(const struct loaded_map *map, const struct map_replica *replica, int64_t original, bool target)
{
    for (int step = 0; step < 16; step++) {
        struct piece piece;
        int64_t start = original > 0 ? (int64_t)(random_number() % (uint64_t)original) : 0, length;
        if (target && step % 2 == 0)
            start = (int64_t)(random_number() % 20000);
        if (!locate_piece(map, replica, start, original, &piece))
            continue;
        if (piece.offset < start || piece.length < 1 || piece.length > original - piece.offset
            || piece.replica_offset < 0 || piece.length > replica->size - piece.replica_offset)
            abort();
        struct strip strip = locate_strip(map, replica, piece.replica_offset);
        if (strip.component >= replica->servers || strip.offset < 0 || strip.length < 1)
            abort();
        if (target && replica->extent_count == 0
            && (locate_original(map, replica, piece.replica_offset, &length) != piece.offset || length != piece.length))
            abort();
    }
}

static void use(const struct loaded_map *map)
{
    const struct map_header *header = map->header;
    for (uint32_t i = 0; i < header->file_count; i++) {
        const struct map_file *file = &map->files[i];
        if (map_find(map, map_at(map, file->path), file->identity.device, file->identity.inode) != file)
            abort();
        for (uint32_t k = 0; k < file->replica_count; k++)
            use_replica(map, &map->replicas[file->first_replica + k], file->identity.size, false);
    }
    for (uint32_t i = 0; i < header->target_count; i++) {
        const struct map_target *target = &map->targets[i];
        if (map_find_target(map, map_at(map, target->path), target->device, target->inode, map_at(map, target->name))
            != target)
            abort();
        for (uint32_t k = 0; k < target->replica_count; k++)
            use_replica(map, &map->replicas[target->first_replica + k], INT64_MAX, true);
    }
}

static int fuzz(const char *path, uint64_t seed, int count)
{
    size_t size;
    char *good = read_whole(path, &size);
    int accepted = 0;
    random_state = seed * 2654435769u + 1;
    for (int i = 0; i < count; i++) {
        size_t length = random_number() % 16 == 0 ? random_number() % (size + 1) : size;
        char *base = malloc(length > 0 ? length : 1);
        memcpy(base, good, length);
        if (length >= sizeof(struct map_header)) {
            for (uint64_t hits = 1 + random_number() % 3; hits > 0; hits--)
                damage(base, length);
            /* Mostly with right checksums, so that the checks after them are reached, too. */
            if (random_number() % 8 != 0)
                renew(base, length);
        }
        const char *why;
        struct loaded_map *map = map_of(base, length, &why);
        if (problem_of(map, why) == NULL) {
            use(map);
            accepted++;
        }
        if (map != NULL)
            map_free(map);
        free(base);
    }
    printf("%d\n", accepted);
    return 0;
}

static int flips(const char *path)
{
    size_t size;
    char *base = read_whole(path, &size);
    int accepted = 0;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        const char *why;
        base[bit / 8] ^= (char)(1 << bit % 8);
        struct loaded_map *map = map_of(base, size, &why);
        accepted += problem_of(map, why) == NULL;
        if (map != NULL)
            map_free(map);
        base[bit / 8] ^= (char)(1 << bit % 8);
    }
    printf("%d\n", accepted);
    return 0;
}

static int use_entry(const char *path, uint64_t number)
{
    for (int opened = 0; opened < 2; opened++) {
        const char *why = NULL;
        const struct loaded_map *map = map_current(path, &why);
        puts(map != NULL ? "ok" : why);
        if (map != NULL)
            map_file_at(map, number);
    }
    return 0;
}

static int check(const char *map_path, const char *path)
{
    const char *why = NULL;
    const struct loaded_map *map = map_current(map_path, &why);
    struct stat found = {0};
    if (map == NULL)
        return 1;
    stat(path, &found);
    bool seems = freshness_seems_fresh(map->files, &found);
    bool fresh = freshness_check(map, map->files, open(path, O_RDONLY));
    printf("%s %u, seems %s\n", fresh ? "fresh" : "not fresh", freshness_stale(map, map->replicas),
           seems ? "fresh" : "changed");
    return 0;
}

static int killed(const char *map_path)
{
    const char *why = NULL;
    const struct loaded_map *map = map_current(map_path, &why);
    int status;
    if (map == NULL)
        return 1;
    if (fork() == 0) {
        freshness_mark(map, map->replicas, STALE_WRITTEN);
        kill(getpid(), SIGKILL);
    }
    return wait(&status) < 0 || !WIFSIGNALED(status);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "locate") == 0)
        return answer_locate(argv[2]);
    if (argc == 3 && strcmp(argv[1], "strip") == 0)
        return answer_strip(argv[2]);
    if (argc == 5 && strcmp(argv[1], "fuzz") == 0)
        return fuzz(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 3 && strcmp(argv[1], "flips") == 0)
        return flips(argv[2]);
    if (argc == 4 && strcmp(argv[1], "use") == 0)
        return use_entry(argv[2], strtoull(argv[3], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "find") == 0)
        return find(argv[2], argv[3], argv[4]);
    if (argc == 4 && strcmp(argv[1], "check") == 0)
        return check(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "killed") == 0)
        return killed(argv[2]);
    return 2;
}
