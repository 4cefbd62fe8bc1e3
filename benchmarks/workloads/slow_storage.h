/* Storage on which faults of I/O take as long as on disks, though the files are in memory. A program is linked with
 * slow_storage.c as a library before MPI's, so that tools that are preloaded see its calls first. */
#ifndef SLOW_STORAGE_H
#define SLOW_STORAGE_H

/* From now on this process waits in each open of a file whose path begins with `files`, and in each pread and pwrite of
 * such a file, `times` as long as nominal storage takes. */
void slow_storage(const char *files, long long times);

#endif
