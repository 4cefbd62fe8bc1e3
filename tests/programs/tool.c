/* Another preloaded tool, made as Darshan is: wraps MPI_File_write_at and calls on with PMPI_. Says at the end how
 * often. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

static int calls;

__attribute__((destructor)) static void report(void)
{
    if (calls)
        printf("%d\n", calls);
}

int MPI_File_write_at(void *file, int64_t offset, const void *data, int count, uintptr_t type, void *status)
{
    int (*real)(void *, int64_t, const void *, int, uintptr_t, void *);
    *(void **)&real = dlsym(RTLD_DEFAULT, "PMPI_File_write_at");
    calls++;
    return real(file, offset, data, count, type, status);
}
