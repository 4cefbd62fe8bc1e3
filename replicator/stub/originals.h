/* Descriptors of originals, which are the program's files. RATIONALE: when a process closes any descriptor of a file,
 * it loses its POSIX locks (fcntl, lockf) on the file, also those that it took through other descriptors. So a
 * descriptor that the library needs no more is kept while the process has the file open in another way, and serves the
 * library's next open of the file: there is at most one for each that was needed at a time. */
#ifndef PDLA_ORIGINALS_H
#define PDLA_ORIGINALS_H

/* As open() with O_CLOEXEC and O_NONBLOCK. -1: not possible. */
int original_open(const char *path, int flags);
/* Ends the use of a descriptor, also of one that freshness_find() gave; -1: there is none. */
void original_close(int fd);
/* After the process may have closed files in other ways: closes what was kept for their sake. */
void originals_close_kept(void);

#endif
