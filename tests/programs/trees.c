/* A B+-tree, or the addresses of a space, against a table of what should be in it:
 *
 *     trees SEED narrow|wide|addresses|numbers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static uint32_t value_of(int64_t number)
{
    return UINT32_MAX - (uint32_t)number;
}

/* The number of a value: keys of a wide tree are equal for four of them. */
static int64_t number_at(struct place_in at, bool wide)
{
    if (!at.leaf)
        return -1;
    int64_t key = at.leaf->key[at.index], number = wide ? key * 4 + at.leaf->minor[at.index] : key;
    check(at.leaf->value[at.index] == value_of(number), "the value belongs to another key");
    return number;
}

static void check_all(const struct nodes *nodes, const struct ordered *tree)
{
    struct place_in at = ordered_first(nodes, tree);
    for (int64_t number = 0; number < KEYS; number++)
        if (is_in[number]) {
            check(number_at(at, tree->wide) == number, "a value is missing, or in the wrong place");
            at = ordered_next(at);
        }
    check(!at.leaf, "there are more values");
}

static void check_tree(bool wide)
{
    struct memory memory = {.left = (int64_t)1 << 40};
    struct nodes nodes = {0};
    struct ordered tree = {.wide = wide};
    nodes_begin(&nodes);
    for (int64_t step = 0; step < STEPS; step++) {
        /* It grows and shrinks in turns, at random places and in order. */
        bool grows = step / 30000 % 2 == 0, in_order = step / 60000 % 2;
        int64_t number = in_order ? step % KEYS : chance(KEYS);
        int64_t key = tree.wide ? number / 4 : number, minor = tree.wide ? number % 4 : 0;
        int64_t before = number;
        while (before >= 0 && !is_in[before])
            before--;
        check(number_at(ordered_upto(&nodes, &tree, key, minor), wide) == before, "the value before is another one");
        if (!is_in[number] && (grows || chance(4) == 0))
            ordered_put(&memory, &nodes, &tree, key, minor, value_of(number));
        else if (is_in[number] && (!grows || chance(4) == 0))
            ordered_remove(&nodes, &tree, key, minor);
        else
            continue;
        is_in[number] = !is_in[number];
        if (step % 1000 == 0)
            check_all(&nodes, &tree);
    }
    check_all(&nodes, &tree);
    for (int64_t number = 0; number < KEYS; number++)
        if (is_in[number])
            ordered_remove(&nodes, &tree, tree.wide ? number / 4 : number, tree.wide ? number % 4 : 0);
    check(!tree.root, "an empty tree has a node");
    memory_end(&memory);
}

static int take_all(void *context)
{
    struct memory *memory = context;
    struct numbered items = {.size = 4096, .pieces = (1 << 16) - 2}; /* all pieces but one are taken */
    uint32_t before = 0, number;
    while ((number = number_take(memory, &items)) > before)
        before = number;
    return CACHING_DONE;
}

/* The last numbers are given; then there is no memory, however much is left. */
static void check_numbers(void)
{
    struct memory memory = {.left = (int64_t)1 << 40};
    check(guarded(&memory, take_all, &memory) == CACHING_NO_MEMORY, "there is a number after the last one");
    check(memory.left > (int64_t)1 << 39, "the memory is used up");
    memory_end(&memory);
}

/* Pieces are taken and freed at random; nearly all addresses are taken in turn, and then nearly none. */
static void check_addresses(void)
{
    struct caching_space space = {.capacity = KEYS};
    const struct caching_setup setup = {.spaces = 1, .space = &space, .limit = (int64_t)1 << 30};
    struct caching *core = caching_new(&setup);
    struct addresses *addresses = &core->cache[0].addresses;
    int64_t taken = 0, lowest = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        bool grows = step / 30000 % 2 == 0;
        int64_t length = 1 + chance(3), address;
        while (lowest < KEYS && is_in[lowest])
            lowest++;
        if (lowest < KEYS && chance(4) < (grows ? 3 : 1)) {
            int64_t size = addresses_take(core, addresses, length, &address);
            check(address == lowest && size <= length, "not the lowest addresses");
            for (int64_t i = 0; i < size; i++)
                check(!is_in[address + i], "an address is taken twice");
            check(size == length || address + size == KEYS || is_in[address + size], "the hole has more");
            memset(is_in + address, true, (size_t)size);
            taken += size;
        } else {
            address = chance(KEYS);
            for (length = 0; length < 3 && address + length < KEYS && is_in[address + length]; length++)
                is_in[address + length] = false;
            if (length > 0)
                addresses_free(core, addresses, address, length);
            lowest = address < lowest ? address : lowest;
            taken -= length;
        }
        check(caching_room(core, 0) == KEYS - taken, "the room is another one");
    }
    caching_free(core);
}

int main(int argc, char **argv)
{
    check(argc == 3, "two arguments");
    state = strtoull(argv[1], NULL, 10);
    if (strcmp(argv[2], "addresses") == 0)
        check_addresses();
    else if (strcmp(argv[2], "numbers") == 0)
        check_numbers();
    else
        check_tree(strcmp(argv[2], "wide") == 0);
    return 0;
}
