/* The start and the end of the program. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "launch.h"
#include "messages.h"

static void leave_to_parent(void)
{
    active = false;
}

__attribute__((constructor)) static void begin_process(void)
{
    const bool observed = interpose_observer.wanted && interpose_observer.wanted();
    if (observed)
        ticks_choose();
    active = observed || ASK(wanted, ());
    if (active)
        pthread_atfork(NULL, NULL, leave_to_parent);
}

static void report_once(void)
{
    static int reported;
    if (active && !__atomic_exchange_n(&reported, 1, __ATOMIC_ACQ_REL))
        INTERCEPT(report, ());
}

/* Ends the interceptor's work on files that were not closed, and reports. */
static void end_files(bool over)
{
    const bool interrupts = inside_hook();
    enter();
    if (active)
        INTERCEPT(ending, (over, interrupts));
    leave(0);
    if (!interrupts)
        report_once();
}

__attribute__((destructor)) static void end_process(void)
{
    end_files(true);
}

static void say_unknown(const struct mpi *mpi)
{
    char version[8192] = "an MPI without a version"; /* MPI_MAX_LIBRARY_VERSION_STRING of every family */
    int length;
    if (!launch_is_first())
        return;
    if (mpi->Get_library_version)
        mpi->Get_library_version(version, &length);
    char line[sizeof version + 128];
    const int written = snprintf(line, sizeof line, "pdla: does not know this MPI (%.*s), so the program runs without "
                                 "pdla\n", (int)strcspn(version, "\n"), version);
    message_write(line, (size_t)written);
}

bool knows_mpi(void)
{
    static int said;
    const struct mpi *mpi = running_mpi();
    if (!mpi || mpi->family != MPI_FAMILY_UNKNOWN)
        return true;
    if (active && !__atomic_exchange_n(&said, 1, __ATOMIC_ACQ_REL))
        say_unknown(mpi);
    active = false;
    return false;
}

/* Whether the tools see this call of MPI_Init. */
static bool initializing(void)
{
    const bool watched = enter();
    if (watched)
        INTERCEPT(initializing, ());
    return watched;
}

static int initialized(bool watched, int rc)
{
    if (rc == 0 && watched && knows_mpi()) {
        INTERCEPT(initialized, ());
        OBSERVE(initialized, ());
    }
    return leave(rc);
}

EXPORT int MPI_Init(int *argc, char ***argv)
{
    int (*real)(int *, char ***) = REAL(CALL_Init, int *, char ***);
    bool watched = initializing();
    return initialized(watched, real(argc, argv));
}
ALIAS(Init)

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int (*real)(int *, char ***, int, int *) = REAL(CALL_Init_thread, int *, char ***, int, int *);
    bool watched = initializing();
    return initialized(watched, real(argc, argv, required, provided));
}
ALIAS(Init_thread)

/* RATIONALE: a guard of its own: programs close files in callbacks of MPI_Finalize, and those calls
 * are the program's. */
EXPORT int MPI_Finalize(void)
{
    static __thread bool inside;
    int (*real)(void) = (int (*)(void))find_call(CALL_Finalize, inside);
    if (active && !inside) {
        OBSERVE(finalizing, ());
        end_files(false);
    }
    inside = true;
    int rc = real();
    inside = false;
    return rc;
}
ALIAS(Finalize)

EXPORT int MPI_Session_finalize(void *session)
{
    int (*real)(void *) = REAL(CALL_Session_finalize, void *);
    const bool interrupts = inside_hook();
    if (enter()) {
        OBSERVE(finalizing, ());
        INTERCEPT(ending, (false, interrupts));
    }
    return leave(real(session));
}
ALIAS(Session_finalize)

EXPORT int MPI_File_create_errhandler(void *function, mpi_handle *handler)
{
    handlers_made();
    return REAL(CALL_File_create_errhandler, void *, mpi_handle *)(function, handler);
}
ALIAS(File_create_errhandler)
