#include "homeward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "locks.h"
#include "partial_pages.h"
#include "sorted_runs.h"
#include "transfer.h"
#include "write_stats.h"
#include "writeback.h"

enum { PARTS = 512 /* of the buffer, in a system call */ };

bool homeward_reserve(struct homeward *home, size_t pieces)
{
    if (pieces <= home->room)
        return true;
    struct homeward_piece *found = realloc(home->pieces, pieces * sizeof *found);
    if (found == NULL)
        return false;
    home->pieces = found;
    home->room = pieces;
    return true;
}

bool homeward_add(struct homeward *home, uint32_t source, uint64_t number, const struct journal_entry *entry,
                  int64_t length)
{
    for (int64_t done = 0; done < length;) {
        const int64_t offset = entry->start + done, left = HOME_CHUNK - offset % HOME_CHUNK;
        const int64_t part = length - done < left ? length - done : left;
        if (home->count == home->room && !homeward_reserve(home, 2 * home->room + PARTS))
            return false;
        home->pieces[home->count++] = (struct homeward_piece){offset, (int64_t)entry->place + done, entry->stamp,
                                                              (uint32_t)part, source, number};
        done += part;
    }
    return true;
}

static int by_offset(const void *one, const void *other)
{
    const struct homeward_piece *a = one, *b = other;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Older ones first. */
static int by_age(const void *one, const void *other)
{
    const struct homeward_piece *a = one, *b = other;
    if (a->stamp != b->stamp)
        return a->stamp < b->stamp ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

bool homeward_is_newer(const struct homeward_piece *one, const struct homeward_piece *other)
{
    return by_age(one, other) > 0;
}

static int by_place(const void *one, const void *other)
{
    const struct homeward_piece *a = one, *b = other;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

bool homeward_sort(struct homeward *home)
{
    sort_runs(home->pieces, home->count, sizeof *home->pieces, by_offset);
    home->chunk_count = 0;
    for (size_t i = 0; i < home->count; i++)
        home->chunk_count += i == 0 || home->pieces[i].offset / HOME_CHUNK != home->pieces[i - 1].offset / HOME_CHUNK;
    size_t chunk = 0, *chunks = realloc(home->chunks, (home->chunk_count + 1) * sizeof *chunks);
    if (chunks == NULL)
        return false;
    home->chunks = chunks;
    for (size_t i = 0; i < home->count; i++)
        if (i == 0 || home->pieces[i].offset / HOME_CHUNK != home->pieces[i - 1].offset / HOME_CHUNK)
            home->chunks[chunk++] = i;
    home->chunks[chunk] = home->count;
    return true;
}

void homeward_clear(struct homeward *home)
{
    home->count = home->chunk_count = 0;
}

void homeward_free(struct homeward *home)
{
    free(home->pieces);
    free(home->chunks);
    *home = (struct homeward){0};
}

/* RATIONALE: in huge pages. The kernel takes three times as long for 2,048 small ones as the bytes take to be moved. */
char *homeward_buffer(void)
{
    char *buffer = mmap(NULL, HOME_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return NULL;
    madvise(buffer, HOME_CHUNK, MADV_HUGEPAGE);
    return buffer;
}

void homeward_buffer_free(char *buffer)
{
    if (buffer != NULL)
        munmap(buffer, HOME_CHUNK);
}

/* Reads the pieces, in their present order, to where they belong in the chunk that begins at `base`. */
static int read_pieces(const struct homeward_piece *pieces, size_t count, const int *sources, int64_t base,
                       char *buffer)
{
    struct iovec parts[PARTS];
    int error = 0;
    for (size_t first = 0, next; error == 0 && first < count; first = next) {
        const struct homeward_piece *start = &pieces[first];
        int64_t end = start->place;
        for (next = first; next < count && next - first < PARTS && pieces[next].source == start->source
                           && pieces[next].place == end; next++) {
            parts[next - first] = (struct iovec){buffer + (pieces[next].offset - base), pieces[next].length};
            end += pieces[next].length;
        }
        error = move_parts(sources[start->source], false, parts, (int)(next - first), start->place);
    }
    return error;
}

/* Bytes of the original without a gap. */
struct stretch {
    int64_t start, stop;
};

/* The runs that the pieces, sorted by their offsets, cover. *overlap: some byte is in two pieces. */
static size_t find_runs(const struct homeward_piece *pieces, size_t count, struct stretch *runs, bool *overlap)
{
    size_t found = 0;
    *overlap = false;
    for (size_t i = 0; i < count; i++) {
        const int64_t start = pieces[i].offset, stop = start + pieces[i].length;
        if (found == 0 || start > runs[found - 1].stop) {
            runs[found++] = (struct stretch){start, stop};
            continue;
        }
        struct stretch *last = &runs[found - 1];
        *overlap = *overlap || start < last->stop;
        last->stop = stop > last->stop ? stop : last->stop;
    }
    return found;
}

static int write_runs(struct writer *writer, const struct stretch *runs, size_t count, int64_t base, const char *buffer,
                      uint64_t *requests)
{
    const int64_t most = writer->request > 0 ? writer->request : HOME_CHUNK;
    int error = 0;
    for (size_t i = 0; i < count; i++)
        for (int64_t at = runs[i].start; error == 0 && at < runs[i].stop; at += most) {
            const int64_t length = runs[i].stop - at < most ? runs[i].stop - at : most;
            if ((error = note_write(writer)) == 0)
                error = write_whole(writer->fd, buffer + (at - base), length, at);
            ++*requests;
        }
    return error;
}

int homeward_move(struct writer *writer, const struct homeward *home, size_t chunk, const int *sources, char *buffer)
{
    const size_t first = home->chunks[chunk], count = home->chunks[chunk + 1] - first;
    const int64_t base = home->pieces[first].offset - home->pieces[first].offset % HOME_CHUNK;
    struct homeward_piece *pieces = home->pieces + first;
    struct stretch *runs = malloc(count * sizeof *runs);
    struct partial_pages pages;
    uint64_t requests = 0, bytes = 0;
    bool overlap;
    int error = runs == NULL ? ENOMEM : 0;
    if (error == 0) {
        const size_t found = find_runs(pieces, count, runs, &overlap);
        partial_pages_start(&pages, writer->fd, writer->device);
        for (size_t i = 0; i < found; i++) {
            partial_pages_add(&pages, runs[i].start, runs[i].stop);
            bytes += (uint64_t)(runs[i].stop - runs[i].start);
        }
        partial_pages_flush(&pages);
        qsort(pieces, count, sizeof *pieces, overlap ? by_age : by_place);
        error = read_pieces(pieces, count, sources, base, buffer);
        const bool locked = error == 0 && lock_original(writer, runs[0].start, runs[found - 1].stop);
        if (error == 0)
            error = write_runs(writer, runs, found, base, buffer, &requests);
        unlock_original(writer, runs[0].start, runs[found - 1].stop, locked);
    }
    pthread_mutex_lock(&writer->written->lock);
    writer->written->back_bytes += error == 0 ? bytes : 0;
    writer->written->back_requests += requests;
    pthread_mutex_unlock(&writer->written->lock);
    free(runs);
    return error;
}
