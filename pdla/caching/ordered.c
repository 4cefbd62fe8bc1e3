/* B+-trees. Values are in the leaves, which are linked. */
#include <string.h>

#include "core.h"

enum { HALF = FANOUT / 2, FEW = FANOUT / 4, MANY = FANOUT - FANOUT / 4 };

struct path {
    struct node *node[DEEPEST];
    int64_t index[DEEPEST]; /* where it goes down; in the leaf, how many values are not after */
};

void nodes_begin(struct nodes *nodes)
{
    nodes->narrow.size = sizeof(struct node);
    nodes->wide.size = sizeof(struct node) + FANOUT * sizeof(int64_t);
}

static struct numbered *of_tree(struct nodes *nodes, const struct ordered *tree)
{
    return tree->wide ? &nodes->wide : &nodes->narrow;
}

static struct node *node_at(const struct nodes *nodes, const struct ordered *tree, uint32_t number)
{
    return item_at(tree->wide ? &nodes->wide : &nodes->narrow, number);
}

static uint32_t node_new(struct memory *memory, struct nodes *nodes, const struct ordered *tree)
{
    uint32_t number = number_take(memory, of_tree(nodes, tree));
    struct node *node = node_at(nodes, tree, number);
    node->count = 0;
    node->next = node->before = NULL;
    return number;
}

/* How many of a node's keys are not after (key, minor). */
static int64_t upto(const struct node *node, bool wide, int64_t key, int64_t minor)
{
    const int64_t *at = node->key;
    if (wide) {
        int64_t low = 0, high = node->count;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (at[middle] < key || (at[middle] == key && node->minor[middle] <= minor))
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    int64_t count = node->count;
    while (count > 1) {
        int64_t half = count / 2;
        at = at[half - 1] <= key ? at + half : at;
        count -= half;
    }
    return at - node->key + (count > 0 && *at <= key);
}

/* RATIONALE: a search in a node that is not in the processor's cache would wait for one line of it
 * after the other. */
static struct node *fetched(struct node *node, bool wide)
{
    size_t size = sizeof *node + (wide ? FANOUT * sizeof *node->minor : 0);
    for (size_t line = 0; line < size; line += 64)
        __builtin_prefetch((char *)node + line);
    return node;
}

/* The leaf where (key, minor) belongs. */
static struct node *leaf_of(const struct nodes *nodes, const struct ordered *tree, int64_t key, int64_t minor)
{
    struct node *node = node_at(nodes, tree, tree->root);
    for (int level = tree->height; level > 0; level--) {
        int64_t below = upto(node, tree->wide, key, minor);
        node = fetched(node_at(nodes, tree, node->value[below > 0 ? below - 1 : 0]), tree->wide);
    }
    return node;
}

static void find_path(const struct nodes *nodes, const struct ordered *tree, int64_t key, int64_t minor,
                      struct path *path)
{
    struct node *node = node_at(nodes, tree, tree->root);
    for (int level = 0;; level++) {
        int64_t below = upto(node, tree->wide, key, minor);
        path->node[level] = node;
        path->index[level] = below;
        if (level == tree->height)
            return;
        path->index[level] = below > 0 ? below - 1 : 0;
        node = fetched(node_at(nodes, tree, node->value[path->index[level]]), tree->wide);
    }
}

/* Moves values from one place to another, also within a node. */
static void shift(bool wide, struct node *to, int64_t at, const struct node *from, int64_t first, int64_t count)
{
    memmove(to->key + at, from->key + first, (size_t)count * sizeof *to->key);
    memmove(to->value + at, from->value + first, (size_t)count * sizeof *to->value);
    if (wide)
        memmove(to->minor + at, from->minor + first, (size_t)count * sizeof *to->minor);
}

static void set(bool wide, struct node *node, int64_t at, int64_t key, int64_t minor, uint32_t value)
{
    node->key[at] = key;
    node->value[at] = value;
    if (wide)
        node->minor[at] = minor;
}

static void insert(bool wide, struct node *node, int64_t at, int64_t key, int64_t minor, uint32_t value)
{
    shift(wide, node, at + 1, node, at, node->count - at);
    set(wide, node, at, key, minor, value);
    node->count++;
}

/* Moves the upper half of a full node to `right`. What is put at the end leaves the node full: keys
 * often come in order. */
static void halve(bool wide, struct node *node, struct node *right, int64_t at)
{
    int32_t stays = at == FANOUT && !node->next ? FANOUT : HALF;
    shift(wide, right, 0, node, stays, FANOUT - stays);
    right->count = FANOUT - stays;
    node->count = stays;
}

static void link_after(struct node *leaf, struct node *right)
{
    right->next = leaf->next;
    right->before = leaf;
    if (right->next)
        right->next->before = right;
    leaf->next = right;
}

void ordered_put(struct memory *memory, struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor,
                 uint32_t value)
{
    struct path path;
    uint32_t spare[DEEPEST + 1], top = 0;
    bool wide = tree->wide;
    int level = tree->height, spares = 0;
    tree->recent = NULL;
    if (!tree->root)
        tree->root = node_new(memory, nodes, tree);
    find_path(nodes, tree, key, minor, &path);
    /* All memory is taken before the tree changes. */
    for (; level >= 0 && path.node[level]->count == FANOUT; level--)
        spare[spares++] = node_new(memory, nodes, tree);
    if (level < 0)
        top = node_new(memory, nodes, tree);
    for (int above = 0; above < tree->height; above++)
        if (path.index[above] == 0 && upto(path.node[above], wide, key, minor) == 0)
            set(wide, path.node[above], 0, key, minor, path.node[above]->value[0]);
    spares = 0;
    for (level = tree->height; level >= 0; level--) {
        struct node *node = path.node[level];
        int64_t at = path.index[level] + (level < tree->height);
        if (node->count < FANOUT) {
            insert(wide, node, at, key, minor, value);
            return;
        }
        uint32_t number = spare[spares++];
        struct node *right = node_at(nodes, tree, number);
        halve(wide, node, right, at);
        if (level == tree->height)
            link_after(node, right);
        if (at > node->count || right->count == 0)
            insert(wide, right, at - node->count, key, minor, value);
        else
            insert(wide, node, at, key, minor, value);
        key = right->key[0];
        minor = wide ? right->minor[0] : 0;
        value = number;
    }
    const struct node *left = node_at(nodes, tree, tree->root);
    struct node *root = node_at(nodes, tree, top);
    set(wide, root, 0, left->key[0], wide ? left->minor[0] : 0, tree->root);
    set(wide, root, 1, key, minor, value);
    root->count = 2;
    tree->root = top;
    tree->height++;
}

static void unlink_leaf(struct node *leaf)
{
    if (leaf->before)
        leaf->before->next = leaf->next;
    if (leaf->next)
        leaf->next->before = leaf->before;
}

static void take_out(bool wide, struct node *node, int64_t at)
{
    node->count--;
    shift(wide, node, at, node, at + 1, node->count - at);
}

/* Moves all of a node's neighbour on the right into it. */
static void merge(struct nodes *nodes, const struct ordered *tree, struct node *above, int64_t left, bool leaves)
{
    uint32_t number = above->value[left + 1];
    struct node *into = node_at(nodes, tree, above->value[left]), *from = node_at(nodes, tree, number);
    shift(tree->wide, into, into->count, from, 0, from->count);
    into->count += from->count;
    if (leaves)
        unlink_leaf(from);
    take_out(tree->wide, above, left + 1);
    number_give(of_tree(nodes, tree), number);
}

static bool fits(const struct nodes *nodes, const struct ordered *tree, const struct node *above, int64_t left,
                 const struct node *node)
{
    if (left < 0 || left + 1 >= above->count)
        return false;
    const struct node *one = node_at(nodes, tree, above->value[left]);
    const struct node *other = node_at(nodes, tree, above->value[left + 1]);
    return node->count == 0 || one->count + other->count <= MANY;
}

void ordered_remove(struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor)
{
    struct path path;
    tree->recent = NULL;
    find_path(nodes, tree, key, minor, &path);
    take_out(tree->wide, path.node[tree->height], path.index[tree->height] - 1);
    for (int level = tree->height; level > 0; level--) {
        struct node *node = path.node[level], *above = path.node[level - 1];
        int64_t at = path.index[level - 1];
        bool leaves = level == tree->height;
        if (node->count >= FEW)
            return;
        if (fits(nodes, tree, above, at, node)) {
            merge(nodes, tree, above, at, leaves);
        } else if (fits(nodes, tree, above, at - 1, node)) {
            merge(nodes, tree, above, at - 1, leaves);
        } else if (node->count == 0) {
            uint32_t number = above->value[at];
            if (leaves)
                unlink_leaf(node);
            take_out(tree->wide, above, at);
            number_give(of_tree(nodes, tree), number);
        } else {
            return;
        }
    }
    uint32_t root = tree->root;
    while (tree->height > 0 && node_at(nodes, tree, root)->count == 1) {
        tree->root = node_at(nodes, tree, root)->value[0];
        tree->height--;
        number_give(of_tree(nodes, tree), root);
        root = tree->root;
    }
    if (node_at(nodes, tree, root)->count == 0) {
        number_give(of_tree(nodes, tree), root);
        tree->root = 0;
        tree->height = 0;
    }
}

struct place_in ordered_first(const struct nodes *nodes, const struct ordered *tree)
{
    if (!tree->root)
        return (struct place_in){NULL, 0};
    struct node *node = node_at(nodes, tree, tree->root);
    for (int level = tree->height; level > 0; level--)
        node = node_at(nodes, tree, node->value[0]);
    return (struct place_in){node, 0};
}

void ordered_fetch(const struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor)
{
    if (tree->root && tree->height > 0)
        tree->recent = leaf_of(nodes, tree, key, minor);
}

struct place_in ordered_upto(const struct nodes *nodes, struct ordered *tree, int64_t key, int64_t minor)
{
    if (!tree->root)
        return (struct place_in){NULL, 0};
    struct node *leaf = tree->recent;
    if (!leaf || tree->wide || key < leaf->key[0] || key > leaf->key[leaf->count - 1])
        leaf = tree->recent = leaf_of(nodes, tree, key, minor);
    int64_t count = upto(leaf, tree->wide, key, minor);
    if (count == 0) {
        leaf = leaf->before;
        count = leaf ? leaf->count : 0;
    }
    return (struct place_in){leaf, count - 1};
}

struct place_in ordered_next(struct place_in at)
{
    if (at.index + 1 < at.leaf->count)
        return (struct place_in){at.leaf, at.index + 1};
    return (struct place_in){at.leaf->next, 0};
}
