/* A B+-tree against a table of what should be in it: trees SEED WIDE */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

enum { KEYS = 20000, STEPS = 300000 };

static bool is_in[KEYS];
static uint64_t state;

static int64_t chance(int64_t below)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (int64_t)((state >> 33) % (uint64_t)below);
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

/* The number of a value: keys of a wide tree are equal for four of them. */
static int64_t number_at(struct place_in at, bool wide)
{
    if (!at.leaf)
        return -1;
    int64_t number = wide ? at.leaf->pair[at.index].key * 4 + at.leaf->minor[at.index] : at.leaf->pair[at.index].key;
    check(at.leaf->pair[at.index].value == &is_in[number], "the value belongs to another key");
    return number;
}

static void check_all(const struct ordered *tree)
{
    struct place_in at = ordered_first(tree);
    for (int64_t number = 0; number < KEYS; number++)
        if (is_in[number]) {
            check(number_at(at, tree->wide) == number, "a value is missing, or in the wrong place");
            at = ordered_next(at);
        }
    check(!at.leaf, "there are more values");
}

int main(int argc, char **argv)
{
    struct memory memory = {.left = (int64_t)1 << 40};
    struct nodes nodes = {.narrow.size = sizeof(struct node),
                          .wide.size = sizeof(struct node) + FANOUT * sizeof(int64_t)};
    check(argc == 3, "two arguments");
    state = strtoull(argv[1], NULL, 10);
    struct ordered tree = {.wide = atoi(argv[2])};
    for (int64_t step = 0; step < STEPS; step++) {
        /* It grows and shrinks in turns, at random places and in order. */
        bool grows = step / 30000 % 2 == 0, in_order = step / 60000 % 2;
        int64_t number = in_order ? step % KEYS : chance(KEYS);
        int64_t key = tree.wide ? number / 4 : number, minor = tree.wide ? number % 4 : 0;
        int64_t before = number;
        while (before >= 0 && !is_in[before])
            before--;
        check(number_at(ordered_upto(&tree, key, minor), tree.wide) == before, "the value before is another one");
        if (!is_in[number] && (grows || chance(4) == 0))
            ordered_put(&memory, &nodes, &tree, key, minor, &is_in[number]);
        else if (is_in[number] && (!grows || chance(4) == 0))
            ordered_remove(&nodes, &tree, key, minor);
        else
            continue;
        is_in[number] = !is_in[number];
        if (step % 1000 == 0)
            check_all(&tree);
    }
    check_all(&tree);
    for (int64_t number = 0; number < KEYS; number++)
        if (is_in[number])
            ordered_remove(&nodes, &tree, tree.wide ? number / 4 : number, tree.wide ? number % 4 : 0);
    check(!tree.root, "an empty tree has a node");
    memory_end(&memory);
    return 0;
}
