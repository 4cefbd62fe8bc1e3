#include "messages.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* Takes a signal of this thread, which blocks it, unless it has been pending before. */
static void take(const sigset_t *pending, int signal)
{
    const struct timespec now = {0};
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    if (!sigismember(pending, signal))
        sigtimedwait(&one, NULL, &now);
}

void message_write(const char *line, size_t length)
{
    sigset_t both, before, pending;
    sigemptyset(&both);
    sigaddset(&both, SIGPIPE);
    sigaddset(&both, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &both, &before);
    sigpending(&pending);
    const bool failed = write(STDERR_FILENO, line, length) < 0;
    if (failed && errno == EPIPE)
        take(&pending, SIGPIPE);
    if (failed && errno == EFBIG)
        take(&pending, SIGXFSZ);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
