/* The journal and the intent alone: journal_unit write DIRECTORY PIECES | damage JOURNAL ROUNDS | intend DIRECTORY
 * INODE, which makes an intent | boot JOURNAL BOOT, which says whether the journal is of this boot of the node, and
 * whether it would be if it named another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "intent.h"
#include "journal.h"

static int add(struct journal *journal, int64_t start)
{
    const struct journal_entry entry = {.place = 7, .start = start};
    return journal_add(journal, &entry, 10);
}

/* Pieces of 10 bytes of replica 7: one, then pairs that follow one another. */
static int write_pieces(const char *directory, int pieces)
{
    struct journal journal;
    int original = open("/dev/null", O_RDONLY);
    const struct journal_owner owner = {.directory = directory, .target = "/data/file"};
    if (journal_create(&journal, &owner, original) != 0 || add(&journal, 0) != 0
        || journal_sync(&journal) != 0)
        return 1;
    for (int i = 1; i < pieces; i++)
        if (add(&journal, 10 * i + 10 * ((i + 1) / 2)) != 0)
            return 1;
    journal_close(&journal, true);
    return 0;
}

/* Damages a few bits of a copy, round by round; says how often it was refused, and how many entries were. */
static int damage(const char *path, int rounds)
{
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    char *image = malloc(size), *copy = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    rewind(file);
    if (fread(image, 1, size, file) != size)
        return 1;
    unsigned refused = 0, damaged = 0;
    srand(1);
    for (int round = 0; round < rounds; round++) {
        memcpy(copy, image, size);
        /* Half of them in the header, where there are counts. */
        for (int i = rand() % 8; i >= 0; i--) {
            size_t at = round % 2 ? (size_t)rand() % size : 3100 + (size_t)rand() % 300;
            copy[at] ^= (char)(1 << rand() % 8);
        }
        size_t cut = round % 5 ? size : (size_t)rand() % size;
        const struct journal_header *header = (const void *)copy;
        if (cut < JOURNAL_HEADER || !journal_check(header, cut)) {
            refused++;
            continue;
        }
        struct journal_entry entry;
        int64_t length;
        uint64_t count;
        if (!journal_number(header, &header->count, &count))
            return 1;
        for (uint64_t i = 0; i < count; i++)
            damaged += !journal_entry_at(header, i, &entry, &length);
    }
    printf("%u %u\n", refused, damaged);
    free(image);
    free(copy);
    fclose(file);
    return 0;
}

static int boot(const char *path, const char *other)
{
    struct journal_header header;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&header, sizeof header, 1, file) != 1)
        return 1;
    const int own = journal_is_of_this_boot(&header);
    strcpy(header.boot, other);
    printf("%d %d\n", own, journal_is_of_this_boot(&header));
    return fclose(file);
}

static int intend(const char *directory, const char *inode)
{
    struct intent intent;
    const struct original_state original = {.file.inode = strtoull(inode, NULL, 10)};
    return intent_begin(directory, &intent, &original);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    if (strcmp(argv[1], "boot") == 0)
        return boot(argv[2], argv[3]);
    if (strcmp(argv[1], "intend") == 0)
        return intend(argv[2], argv[3]);
    return strcmp(argv[1], "write") == 0 ? write_pieces(argv[2], atoi(argv[3])) : damage(argv[2], atoi(argv[3]));
}
