#define _GNU_SOURCE
#include "intent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file_size.h"
#include "loadedmap.h"
#include "node_directory.h"

static const int64_t PROMISE_NS = INT64_C(10000000000); /* how far ahead `until_ns` is set */

static uint32_t checksum_of(const struct intent *intent)
{
    const size_t start = offsetof(struct intent, busy);
    return crc32c(0, (const char *)intent + start, sizeof *intent - start);
}

static bool path_of(const char *directory, const char *name, char path[4096])
{
    return snprintf(path, 4096, "%s/%s", directory, name) < 4096;
}

enum intent_found intent_read(const char *directory, struct intent *intent)
{
    char path[4096];
    int fd = path_of(directory, "intent", path) ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return errno == ENOENT ? INTENT_NONE : INTENT_DAMAGED;
    const bool whole = read(fd, intent, sizeof *intent) == sizeof *intent
        && memcmp(intent->magic, INTENT_MAGIC, sizeof intent->magic) == 0 && intent->checksum == checksum_of(intent);
    close(fd);
    return whole ? INTENT_THERE : INTENT_DAMAGED;
}

bool intent_covers(const struct intent *intent, int64_t size, int64_t mtime_ns)
{
    return intent->busy == INTENT_BUSY ? mtime_ns - STAMP_SLACK_NS <= intent->until_ns
                                       : intent->size == size && intent->mtime_ns == mtime_ns;
}

bool intent_left_as(const struct intent *intent, const struct original_state *original, bool explained)
{
    return intent->size == original->size && intent->mtime_ns == original->mtime_ns
        && (intent->ctime_ns == original->ctime_ns || explained);
}

/* RATIONALE: any of several ranks may replace the file. Their intents differ only in their times. They write to files
 * of their own: on two nodes or in two containers their process numbers may be equal. */
static int put(const char *directory, struct intent *intent)
{
    char path[4096], unfinished[4096];
    if (!path_of(directory, "intent", path) || !path_of(directory, "intent.XXXXXX" JOURNAL_UNFINISHED, unfinished))
        return ENAMETOOLONG;
    intent->checksum = checksum_of(intent);
    int fd = mkostemps(unfinished, sizeof JOURNAL_UNFINISHED - 1, O_CLOEXEC);
    if (fd < 0)
        return errno;
    errno = EIO;
    const bool written = file_size_allowed(sizeof *intent)
        && write(fd, intent, sizeof *intent) == sizeof *intent && fsync(fd) == 0;
    int error = written ? 0 : errno;
    close(fd);
    if (error == 0 && rename(unfinished, path) != 0)
        error = errno;
    if (error != 0)
        unlink(unfinished);
    return error != 0 ? error : directory_sync(directory);
}

static void note(struct intent *intent, const struct original_state *original)
{
    intent->size = original->size;
    intent->mtime_ns = original->mtime_ns;
    intent->ctime_ns = original->ctime_ns;
}

struct intent intent_now(const struct original_state *original)
{
    struct intent intent = {
        .busy = INTENT_BUSY, .inode = original->file.inode, .pid = getpid(), .until_ns = clock_real_ns() + PROMISE_NS};
    memcpy(intent.magic, INTENT_MAGIC, sizeof intent.magic);
    gethostname(intent.host, sizeof intent.host - 1);
    note(&intent, original);
    return intent;
}

int intent_begin(const char *directory, struct intent *intent, const struct original_state *original)
{
    *intent = intent_now(original);
    return put(directory, intent);
}

int intent_renew(const char *directory, struct intent *intent)
{
    const int64_t now = clock_real_ns();
    if (now + PROMISE_NS / 2 < intent->until_ns)
        return 0;
    intent->until_ns = now + PROMISE_NS;
    return put(directory, intent);
}

void intent_stop(const char *directory, struct intent *intent, const struct original_state *original)
{
    intent->busy = INTENT_FAILED;
    note(intent, original);
    put(directory, intent);
}

int intent_end(const char *directory)
{
    struct intent intent;
    if (intent_read(directory, &intent) != INTENT_THERE)
        return EIO;
    intent.busy = INTENT_DONE;
    return put(directory, &intent);
}

void intent_remove(const char *directory)
{
    char path[4096];
    if (path_of(directory, "intent", path))
        unlink(path);
}
