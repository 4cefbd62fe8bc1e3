/* pdla without its start: a server that has imported all of it (tests/support/ready_pdla.py) runs the
 * arguments in a child, as if that had been started here. Where it would inherit something that the
 * children of the server do not have, this starts pdla itself. `inherited` alone prints what tells.
 *
 * Beside this program are `socket`, of the server, `inherited`, of its children, and `real/pdla`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const READ_AT_START[] = {"LD_", "PYTHON", "LC_", "LANG", "TZ", "COVERAGE", NULL};
static const char *const HONOURED[] = {"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", NULL};
static const char *const STATES[] = {"Uid:",    "Gid:",        "Groups:",  "SigBlk:",       "SigIgn:", "CapEff:",
                                     "CapAmb:", "NoNewPrivs:", "Seccomp:", "Cpus_allowed:", NULL};
static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, 0};

static char place[4096]; /* the directory of this program, with its slash */
static volatile pid_t child;

static char *beside(const char *name)
{
    char *path;
    return asprintf(&path, "%s%s", place, name) < 0 ? NULL : path;
}

static bool begins_as_one(const char *text, const char *const *words)
{
    while (*words != NULL && strncmp(text, *words, strlen(*words)) != 0)
        words++;
    return *words != NULL;
}

static void copy_lines(FILE *out, const char *path, const char *const *only)
{
    char line[4096];
    FILE *in = fopen(path, "r");
    while (in != NULL && fgets(line, sizeof line, in) != NULL)
        if (only == NULL || begins_as_one(line, only))
            fputs(line, out);
    if (in != NULL)
        fclose(in);
}

static int by_text(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* What a process inherits, apart from its arguments, environment, working directory, mask and standard files. */
static char *inherited(void)
{
    static const char *const namespaces[] = {"ipc", "mnt", "net", "pid", "user", "uts", NULL};
    char *text, link[64], target[64];
    size_t size;
    struct stat root = {0};
    FILE *out = open_memstream(&text, &size);
    stat("/", &root);
    fprintf(out, "session %d, group %d, root %ju\n", getsid(0), getpgrp(), (uintmax_t)root.st_ino);
    for (int i = 0; namespaces[i] != NULL; i++) {
        snprintf(link, sizeof link, "/proc/self/ns/%s", namespaces[i]);
        const ssize_t length = readlink(link, target, sizeof target);
        fprintf(out, "%.*s\n", length < 0 ? 0 : (int)length, target);
    }
    copy_lines(out, "/proc/self/status", STATES);
    copy_lines(out, "/proc/self/limits", NULL);
    copy_lines(out, "/proc/self/cgroup", NULL);
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    qsort(environ, count, sizeof *environ, by_text); /* a shell has them in another order */
    for (char **variable = environ; *variable != NULL; variable++)
        if (begins_as_one(*variable, READ_AT_START) && !begins_as_one(*variable, HONOURED))
            fprintf(out, "%s\n", *variable);
    for (int fd = 3; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            fprintf(out, "descriptor %d\n", fd);
    fclose(out);
    return text;
}

static bool may_be_served(void)
{
    char *mine = inherited(), *served = calloc(1, 1 << 16);
    FILE *in = fopen(beside("inherited"), "r");
    const bool same = in != NULL && fread(served, 1, (1 << 16) - 1, in) > 0 && strcmp(mine, served) == 0;
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return false;
    if (in != NULL)
        fclose(in);
    return same;
}

static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.90ssocket", place);
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

static void send_all(int fd, char **words, int argc)
{
    char *text, directory[4096];
    size_t size;
    uint32_t head[3] = {0};
    FILE *out = open_memstream(&text, &size);
    fwrite(head, sizeof head, 1, out);
    fprintf(out, "%s%c", getcwd(directory, sizeof directory), '\0');
    for (char **word = words; *word != NULL; word++)
        fprintf(out, "%s%c", *word, '\0');
    for (char **variable = environ; *variable != NULL; variable++)
        fprintf(out, "%s%c", *variable, '\0');
    fclose(out);
    memcpy(text, (uint32_t[]){(uint32_t)size, (uint32_t)argc, umask(0)}, sizeof head);
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(3 * sizeof(int))];
    } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(3 * sizeof(int))}};
    memcpy(CMSG_DATA(&control.header), (int[]){0, 1, 2}, 3 * sizeof(int));
    struct iovec part = {text, size};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                   .msg_controllen = sizeof control.room};
    ssize_t sent = sendmsg(fd, &message, 0), more = sent;
    for (; more > 0 && (size_t)sent < size; sent += more)
        more = send(fd, text + sent, size - (size_t)sent, 0);
    if (more <= 0)
        exit(125);
}

static int receive(int fd)
{
    int32_t number;
    if (recv(fd, &number, sizeof number, MSG_WAITALL) != sizeof number)
        exit(125);
    return number;
}

static void forward(int signal) { kill(child, signal); }

int main(int argc, char **argv)
{
    const ssize_t length = readlink("/proc/self/exe", place, sizeof place - 1);
    *(strrchr(place, '/') + 1) = '\0';
    if (length > 0 && argc == 1 && strcmp(argv[0], "inherited") == 0)
        return fputs(inherited(), stdout) < 0;
    const int fd = may_be_served() ? reach() : -1;
    if (fd < 0) {
        argv[0] = beside("real/pdla");
        execv(argv[0], argv);
        return 127;
    }
    send_all(fd, argv, argc);
    child = receive(fd);
    for (int i = 0; FORWARDED[i] != 0; i++)
        signal(FORWARDED[i], forward);
    const int status = receive(fd);
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
    return 128 + WTERMSIG(status);
}
