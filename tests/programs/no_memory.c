/* Linked into the library with -Wl,--wrap. One in PDLA_TEST_NO_MEMORY of its allocations fails: random ones,
 * in each rank others, and in each run the same. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);

static int fails(void)
{
    static uint32_t calls;
    const char *one_in = getenv("PDLA_TEST_NO_MEMORY"), *mpich = getenv("PMI_RANK"), *openmpi = getenv("OMPI_COMM_WORLD_RANK");
    const char *rank = mpich != NULL ? mpich : openmpi;
    if (one_in == NULL || rank == NULL)
        return 0;
    uint32_t x = (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) * 2654435761u) ^ ((uint32_t)atoi(rank) * 2246822519u);
    x = (x ^ x >> 15) * 2246822507u;
    if ((x ^ x >> 13) % (uint32_t)atoi(one_in) != 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return fails() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *memory, size_t size) { return fails() ? NULL : __real_realloc(memory, size); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) { return fails() ? NULL : __real_aligned_alloc(alignment, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }
