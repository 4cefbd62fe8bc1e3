/* Another preloaded tool, built like Darshan: it wraps the calls that read or write and calls PMPI_
 * to go on. Prints at the end how many calls there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

static int calls;

__attribute__((destructor)) static void report(void)
{
    if (calls)
        printf("tool %d\n", calls);
}

/* A handle, a count or an offset: what a register holds. */
typedef intptr_t word;

#define WRAP(name, parameters, arguments)                       \
    int MPI_##name parameters                                   \
    {                                                           \
        int(*real) parameters;                                  \
        *(void **)&real = dlsym(RTLD_DEFAULT, "PMPI_" #name);   \
        calls++;                                                \
        return real arguments;                                  \
    }
#define PLAIN(name) WRAP(name, (word f, void *b, word n, word t, void *s), (f, b, n, t, s))
#define AT(name) WRAP(name, (word f, int64_t o, void *b, word n, word t, void *s), (f, o, b, n, t, s))
#define BEGIN(name) WRAP(name, (word f, void *b, word n, word t), (f, b, n, t))
#define BEGIN_AT(name) WRAP(name, (word f, int64_t o, void *b, word n, word t), (f, o, b, n, t))
#define SPECIAL(name)
#define ACCESS(name, form, flags) form(name) form(name##_c)
#define END(name, flags)
#define RESIZE(name)
#define OTHER(name, flags, parameters, arguments)
#include "calls.def"
