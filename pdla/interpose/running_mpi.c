/* Finds the running MPI: its family, its calls and its constants. Without mpi.h one library serves
 * every family. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "running_mpi.h"

const struct mpi *known_mpi; /* stored with release order when it is complete */
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

struct search {
    int skip;            /* how many MPI libraries to pass over */
    char path[PATH_MAX]; /* out */
};

static int search_library(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    const char *base = strrchr(info->dlpi_name, '/');
    if (strncmp(base ? base + 1 : info->dlpi_name, "libmpi", 6) != 0 || search->skip-- > 0)
        return 0;
    snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
    return 1;
}

/* RATIONALE: mpi4py loads libmpi with RTLD_LOCAL, where RTLD_NEXT does not see it. The library is
 * opened after the walk, not in it: a dlopen in another thread takes the loader's two locks in the
 * other order. */
static void *local_symbol(const char *name)
{
    struct search search;
    for (int skip = 0;; skip++) {
        search.skip = skip;
        if (!dl_iterate_phdr(search_library, &search))
            return NULL;
        void *library = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
        void *symbol = library ? dlsym(library, name) : NULL;
        if (library)
            dlclose(library);
        if (symbol)
            return symbol;
    }
}

void *mpi_symbol(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    return symbol ? symbol : local_symbol(name);
}

/* An object of the MPI library. RATIONALE: an executable that uses it has its own copy (a copy
 * relocation). */
static mpi_handle object(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    return (mpi_handle)(address ? address : mpi_symbol(name));
}

static void set_mpich(struct mpi *mpi)
{
    mpi->family = MPI_FAMILY_MPICH;
    mpi->comm_world = 0x44000000;
    mpi->comm_null = 0x04000000;
    mpi->comm_self = 0x44000001;
    mpi->file_null = 0;
    mpi->info_null = 0x1c000000;
    mpi->byte = 0x4c00010d;
    mpi->int64 = 0x4c00083a;
    mpi->op_min = 0x58000002;
    mpi->op_sum = 0x58000003;
    mpi->op_band = 0x58000006;
    mpi->request_null = 0x2c000000;
    mpi->datatype_null = 0x0c000000;
    mpi->handle_mask = UINT32_MAX;
    mpi->handle_size = 4;
    mpi->status_size = 20;
    mpi->count_place = 0;
    mpi->count_shift = 1;
    mpi->status_ignore = (void *)1;
    mpi->err_io = 32;
    mpi->err_no_space = 36;
    mpi->thread_multiple = 3;
}

static void set_openmpi(struct mpi *mpi)
{
    mpi->family = MPI_FAMILY_OPENMPI;
    mpi->comm_world = object("ompi_mpi_comm_world");
    mpi->comm_null = object("ompi_mpi_comm_null");
    mpi->comm_self = object("ompi_mpi_comm_self");
    mpi->file_null = object("ompi_mpi_file_null");
    mpi->info_null = object("ompi_mpi_info_null");
    mpi->byte = object("ompi_mpi_byte");
    mpi->int64 = object("ompi_mpi_int64_t");
    mpi->op_min = object("ompi_mpi_op_min");
    mpi->op_sum = object("ompi_mpi_op_sum");
    mpi->op_band = object("ompi_mpi_op_band");
    mpi->request_null = object("ompi_request_null");
    mpi->datatype_null = object("ompi_mpi_datatype_null");
    mpi->handle_mask = UINTPTR_MAX;
    mpi->handle_size = sizeof(void *);
    mpi->status_size = 24;
    mpi->count_place = 16;
    mpi->count_shift = 0;
    mpi->status_ignore = NULL;
    mpi->err_io = 35;
    mpi->err_no_space = 41;
    mpi->thread_multiple = 3;
}

static void set_abi(struct mpi *mpi)
{
    mpi->family = MPI_FAMILY_ABI;
    mpi->comm_world = 0x101;
    mpi->comm_null = 0x100;
    mpi->comm_self = 0x102;
    mpi->file_null = 0x118;
    mpi->info_null = 0x130;
    mpi->byte = 0x247;
    mpi->int64 = 0x258;
    mpi->op_min = 0x22;
    mpi->op_sum = 0x21;
    mpi->op_band = 0x28;
    mpi->request_null = 0x180;
    mpi->datatype_null = 0x200;
    mpi->handle_mask = UINTPTR_MAX;
    mpi->handle_size = sizeof(void *);
    mpi->status_size = 32;
    mpi->status_ignore = NULL;
    mpi->err_io = 35;
    mpi->err_no_space = 41;
    mpi->thread_multiple = 4096;
}

static bool is_abi(void)
{
    int (*get_version)(int *, int *);
    int major = -1, minor = -1;
    *(void **)&get_version = mpi_symbol("PMPI_Abi_get_version");
    return get_version && get_version(&major, &minor) == 0 && major > 0;
}

/* RATIONALE: no call that may precede MPI_Init shows the values of MPI's handles. Every MPI that has
 * those of MPICH has one of these names in its version: also Cray MPICH and ParaStation MPI. */
static bool is_mpich(const struct mpi *mpi)
{
    static const char *const names[] = {"MPICH", "MVAPICH", "Intel(R) MPI"};
    char version[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of every family */
    int length;
    bool is = false;
    if (mpi->Get_library_version && mpi->Get_library_version(version, &length) == 0)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            is = is || strstr(version, names[i]);
    return is;
}

/* RATIONALE: the PMPI_ names, so that other tools in the process do not see the calls that this
 * library makes. */
static void find_calls(struct mpi *mpi)
{
#define FIND(call) *(void **)&mpi->call = mpi_symbol("PMPI_" #call)
    FIND(Initialized);
    FIND(Query_thread);
    FIND(Error_class);
    FIND(Get_library_version);
    FIND(Comm_test_inter);
    FIND(Comm_rank);
    FIND(Comm_size);
    FIND(Comm_dup);
    FIND(Comm_free);
    FIND(Iallreduce);
    FIND(Ibcast);
    FIND(Ialltoall);
    FIND(Ialltoallv);
    FIND(Wait);
    FIND(Test);
    FIND(Cancel);
    FIND(Request_free);
    FIND(Isend);
    FIND(Irecv);
    FIND(Bcast);
    FIND(Type_size_x);
    FIND(Type_get_extent_x);
    FIND(Type_get_true_extent_x);
    FIND(Type_get_envelope);
    FIND(Type_get_envelope_c);
    FIND(Type_get_contents);
    FIND(Type_get_contents_c);
    FIND(Type_free);
    FIND(Status_set_cancelled);
    FIND(Status_set_elements);
    FIND(Status_set_elements_x);
    FIND(Get_elements_x);
    FIND(Grequest_start);
    FIND(Grequest_complete);
    FIND(File_get_position);
    FIND(File_get_position_shared);
    FIND(File_seek);
    FIND(File_read);
    FIND(File_read_c);
    FIND(File_read_at);
    FIND(File_read_at_c);
    FIND(File_write);
    FIND(File_write_c);
    FIND(File_write_at);
    FIND(File_write_at_c);
    FIND(File_call_errhandler);
    FIND(File_open);
    FIND(File_get_info);
    FIND(Info_free);
    FIND(Info_get);
    FIND(Info_get_string);
    FIND(File_close);
#undef FIND
}

/* False: no MPI is loaded. */
static bool find(struct mpi *mpi)
{
    if (!mpi_symbol("PMPI_Comm_rank"))
        return false;
    find_calls(mpi);
    if (object("ompi_mpi_comm_world"))
        set_openmpi(mpi);
    else if (is_abi())
        set_abi(mpi);
    else if (is_mpich(mpi))
        set_mpich(mpi);
    return true;
}

const struct mpi *find_mpi(void)
{
    static struct mpi running;
    pthread_mutex_lock(&finding);
    if (!known_mpi && find(&running))
        __atomic_store_n(&known_mpi, &running, __ATOMIC_RELEASE);
    const struct mpi *mpi = known_mpi;
    pthread_mutex_unlock(&finding);
    return mpi;
}

/* The bytes moved in a status of a family whose statuses are known to have them. */
static mpi_count count_in(const struct mpi *mpi, const void *status)
{
    uint32_t words[2];
    memcpy(words, (const char *)status + mpi->count_place, sizeof words);
    return (mpi_count)((uint64_t)(words[1] >> mpi->count_shift) << 32 | words[0]);
}

static bool count_is_known; /* changes in learn_moved_bytes() only */

/* RATIONALE: a question to MPI costs as much as all the rest of recording a call. The place of the
 * number is not part of the MPI standard. It is relied on if a number that MPI itself wrote is
 * found there. */
void learn_moved_bytes(void)
{
    const struct mpi *mpi = running_mpi();
    const mpi_count several[] = {INT64_C(0x123456789ab), 0, 512};
    bool known = mpi->family != MPI_FAMILY_ABI && mpi->Status_set_elements_x;
    for (size_t i = 0; known && i < sizeof several / sizeof *several; i++) {
        max_align_t status[64 / sizeof(max_align_t)] = {0};
        known = mpi->Status_set_elements_x(status, mpi->byte, several[i]) == 0 && count_in(mpi, status) == several[i];
    }
    __atomic_store_n(&count_is_known, known, __ATOMIC_RELAXED);
}

mpi_count moved_bytes(const void *status)
{
    const struct mpi *mpi = running_mpi();
    mpi_count moved;
    if (__atomic_load_n(&count_is_known, __ATOMIC_RELAXED))
        return count_in(mpi, status);
    return mpi->Get_elements_x && mpi->Get_elements_x(status, mpi->byte, &moved) == 0 ? moved : -1;
}

void set_moved_bytes(void *status, int64_t bytes)
{
    const struct mpi *mpi = running_mpi();
    if (status == NULL || status == mpi->status_ignore)
        return;
    if (mpi->Status_set_elements_x != NULL)
        mpi->Status_set_elements_x(status, mpi->byte, bytes);
    else
        mpi->Status_set_elements(status, mpi->byte, (int)bytes);
}
