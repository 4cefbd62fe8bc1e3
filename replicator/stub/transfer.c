#define _GNU_SOURCE
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "components.h"
#include "file_size.h"

enum { MOST_PARTS = 1 << 16, CALL_PARTS = 1024 /* IOV_MAX of Linux */ };

static int by_place(const void *one, const void *other)
{
    const struct part *a = one, *b = other;
    if (a->component != b->component)
        return a->component < b->component ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Moves parts that follow one another in a component. */
static int move(const struct transfer *transfer, const struct part *parts, size_t count)
{
    struct iovec memory[CALL_PARTS];
    int64_t offset = parts->offset, left = 0;
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        memory[i] = (struct iovec){parts[i].memory, (size_t)parts[i].length};
        left += parts[i].length;
    }
    const enum timeout timeout = transfer->writing ? TIMEOUT_SHORT : TIMEOUT_LONG;
    int *place = &transfer->components[parts->component];
    const int fd = components_descriptor(transfer->map, transfer->replica, transfer->components, parts->component,
                                         timeout);
    if (fd < 0)
        return errno;
    if (transfer->writing && !file_size_allowed(offset + left))
        return EFBIG;
    const struct map_component *files = map_at(transfer->map, transfer->replica->components);
    const struct component_file file = {transfer->map, map_at(transfer->map, files[parts->component].path), fd, timeout,
                                        transfer->writing ? transfer->lock : -1};
    if (storage_remote(file.path)) {
        const int error = transfer->writing ? storage_write(&file, memory, (int)count, offset)
                                            : storage_read(&file, memory, (int)count, offset, NULL, 0);
        if (error == ETIMEDOUT)
            *place = -1; /* it belongs to the abandoned call */
        return error;
    }
    while (left > 0) {
        const int number = (int)(count - first);
        ssize_t moved = transfer->writing ? pwritev(fd, memory + first, number, offset)
                                          : preadv(fd, memory + first, number, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? errno : EIO;
        offset += moved;
        left -= moved;
        while (first < count && (size_t)moved >= memory[first].iov_len)
            moved -= (ssize_t)memory[first++].iov_len;
        if (first < count) {
            memory[first].iov_base = (char *)memory[first].iov_base + moved;
            memory[first].iov_len -= (size_t)moved;
        }
    }
    return 0;
}

int transfer_flush(struct transfer *transfer)
{
    struct part *parts = transfer->parts;
    int error = 0;
    if (transfer->count == 0)
        return 0;
    qsort(parts, transfer->count, sizeof *parts, by_place);
    for (size_t first = 0, last; error == 0 && first < transfer->count; first = last) {
        for (last = first + 1; last < transfer->count && last - first < CALL_PARTS; last++)
            if (parts[last].component != parts[first].component
                || parts[last].offset != parts[last - 1].offset + parts[last - 1].length)
                break;
        error = move(transfer, &parts[first], last - first);
        transfer->requests++;
    }
    transfer->count = 0;
    return error;
}

int transfer_select(struct transfer *transfer, const struct map_replica *replica, int *components)
{
    int error = transfer->replica == replica ? 0 : transfer_flush(transfer);
    transfer->replica = replica;
    transfer->components = components;
    return error;
}

static int add_part(struct transfer *transfer, const struct strip *strip, char *memory)
{
    struct part *last = transfer->count > 0 ? &transfer->parts[transfer->count - 1] : NULL;
    if (last != NULL && last->component == strip->component && last->offset + last->length == strip->offset
        && last->memory + last->length == memory) {
        last->length += strip->length;
        return 0;
    }
    if (transfer->count == MOST_PARTS) {
        int error = transfer_flush(transfer);
        if (error != 0)
            return error;
    }
    if (transfer->count == transfer->capacity) {
        size_t capacity = transfer->capacity == 0 ? 16 : 2 * transfer->capacity;
        struct part *larger = realloc(transfer->parts, capacity * sizeof *larger);
        if (larger == NULL)
            return ENOMEM;
        transfer->parts = larger;
        transfer->capacity = capacity;
    }
    transfer->parts[transfer->count++] = (struct part){strip->component, strip->offset, strip->length, memory};
    return 0;
}

int transfer_add(struct transfer *transfer, int64_t offset, int64_t length, char *memory)
{
    while (length > 0) {
        struct strip strip = locate_strip(transfer->map, transfer->replica, offset);
        if (strip.length > length)
            strip.length = length;
        int error = add_part(transfer, &strip, memory);
        if (error != 0)
            return error;
        offset += strip.length;
        length -= strip.length;
        memory += strip.length;
    }
    return 0;
}

void transfer_free(struct transfer *transfer)
{
    free(transfer->parts);
}

int write_whole(int fd, const char *memory, int64_t length, int64_t offset)
{
    if (!file_size_allowed(offset + length))
        return EFBIG;
    while (length > 0) {
        ssize_t written = pwrite(fd, memory, (size_t)length, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : ENOSPC;
        memory += written;
        length -= written;
        offset += written;
    }
    return 0;
}

static int64_t length_of(const struct iovec *parts, int count)
{
    int64_t length = 0;
    for (int i = 0; i < count; i++)
        length += (int64_t)parts[i].iov_len;
    return length;
}

int move_parts(int fd, bool writing, struct iovec *parts, int count, int64_t place)
{
    if (writing && !file_size_allowed(place + length_of(parts, count)))
        return EFBIG;
    for (int first = 0; first < count;) {
        ssize_t moved = (writing ? pwritev : preadv)(fd, parts + first, count - first, place);
        if (moved == 0)
            return ENODATA;
        if (moved < 0 && errno != EINTR)
            return errno;
        for (place += moved > 0 ? moved : 0; first < count && moved >= (ssize_t)parts[first].iov_len; first++)
            moved -= (ssize_t)parts[first].iov_len;
        if (first < count && moved > 0) {
            parts[first].iov_base = (char *)parts[first].iov_base + moved;
            parts[first].iov_len -= (size_t)moved;
        }
    }
    return 0;
}
