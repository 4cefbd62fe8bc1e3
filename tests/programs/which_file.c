/* Compares identities of files: on standard input, again and again, the noted one, the found one, whether both are of
 * this boot, and whether they have one path. Writes a digit for each: enum which_file. */
#include <stdio.h>

#include "file_identity.h"

struct pair {
    struct file_identity noted, found;
    uint32_t this_boot, one_path;
};

int main(void)
{
    struct pair pair;
    while (fread(&pair, sizeof pair, 1, stdin) == 1) {
        const struct noted_file noted = {&pair.noted, "/data/file", pair.this_boot != 0};
        putchar('0' + (int)file_compare(&noted, &pair.found, pair.one_path ? "/data/file" : "/data/other"));
    }
    return 0;
}
