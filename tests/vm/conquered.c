/* Stands in for a machine that has been conquered: it tries what an intruder would, and says what came of it.
 *
 * Arguments: the descriptor to report to, the descriptor of a file given to read, a secret file, a folder of the user,
 * a process outside, a TCP port on which somebody listens, the path of a socket, the name of an abstract socket.
 * Each line of the report is "ATTEMPT: refused (why)" or "ATTEMPT: done". */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int report;

static void say(const char *attempt, long result) {
    if (result < 0)
        dprintf(report, "%s: refused (%s)\n", attempt, strerrorname_np(errno));
    else
        dprintf(report, "%s: done\n", attempt);
}

static long reads(const char *path) {
    char byte;
    int file = open(path, O_RDONLY);
    return file < 0 ? -1 : read(file, &byte, 1) == 1 ? 0 : -1;
}

static long reaches(int kind, int type, const struct sockaddr *address, socklen_t size) {
    int end = socket(kind, type, 0);
    return end < 0 ? -1 : connect(end, address, size);
}

static struct sockaddr_un named(const char *path, int is_abstract, socklen_t *size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + is_abstract, path, sizeof address.sun_path - 2);
    *size = offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(path);
    return address;
}

static void files(const char *given, const char *secret, const char *folder, const char *outside) {
    char path[4096];
    say("read a secret", reads(secret));
    snprintf(path, sizeof path, "../../../../../../../../..%s", secret);
    say("read a secret by a relative path", reads(path));
    snprintf(path, sizeof path, "/proc/%s/root%s", outside, secret);
    say("read a secret through a process outside", reads(path));
    snprintf(path, sizeof path, "/proc/%s/environ", outside);
    say("read the environment of a process outside", reads(path));
    say("list the user's folder", open(folder, O_RDONLY | O_DIRECTORY));
    snprintf(path, sizeof path, "%s/planted", folder);
    say("write into the user's folder", open(path, O_WRONLY | O_CREAT, 0600));
    say("write beside its own program", open("planted", O_WRONLY | O_CREAT, 0600));
    say("write into /tmp", open("/tmp/rig-planted", O_WRONLY | O_CREAT, 0600));
    unlink("/tmp/rig-planted");
    say("replace its own program", unlink("/proc/self/exe"));
    snprintf(path, sizeof path, "/proc/self/fd/%s", given);
    say("write into a file that it may read", open(path, O_RDWR));
    say("make a file that it may read writable", chmod(path, 0777));
    say("make a folder", mkdir("made", 0700));
    say("make a link", symlink(secret, "link"));
}

static void network(const char *port, const char *path, const char *name) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
    socklen_t size;
    say("connect to a TCP port", reaches(AF_INET, SOCK_STREAM, (void *)&there, sizeof there));
    say("connect by UDP", reaches(AF_INET, SOCK_DGRAM, (void *)&there, sizeof there));
    struct sockaddr_un address = named(path, 0, &size);
    say("connect to a socket of the user", reaches(AF_UNIX, SOCK_STREAM, (void *)&address, size));
    address = named(name, 1, &size);
    say("connect to an abstract socket", reaches(AF_UNIX, SOCK_STREAM, (void *)&address, size));
    there.sin_port = 0;
    int end = socket(AF_INET, SOCK_STREAM, 0);
    say("listen", end < 0 ? -1 : bind(end, (void *)&there, sizeof there) || listen(end, 1) ? -1 : 0);
    say("open a packet socket", socket(AF_PACKET, SOCK_RAW, 0));
}

static void processes(pid_t outside) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x10000, 1};
    say("signal a process outside", kill(outside, 0));
    say("kill a process outside", kill(outside, SIGKILL));
    say("trace a process outside", ptrace(PTRACE_SEIZE, outside, 0, 0));
    say("read the memory of a process outside", syscall(SYS_process_vm_readv, outside, &here, 1L, &there, 1L, 0L));
    say("open a process outside", syscall(SYS_pidfd_open, outside, 0L));
}

static void kernel(void) {
    char zeros[256] = {0};
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    say("io_uring_setup", syscall(SYS_io_uring_setup, 1L, zeros));
    say("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
    say("userfaultfd", syscall(SYS_userfaultfd, 0L));
    say("perf_event_open", syscall(SYS_perf_event_open, zeros, 0L, -1L, -1L, 0L));
    say("add_key", syscall(SYS_add_key, "user", "name", "x", 1L, -3L));
    say("unshare", unshare(CLONE_NEWUSER));
    say("clone into a user namespace", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0L, 0L, 0L, 0L));
    say("clone3", syscall(SYS_clone3, zeros, 64L));
    say("mount", mount("none", "/", "tmpfs", 0, ""));
    say("setuid", setuid(0));
    say("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, zeros, 0L));
    say("init_module", syscall(SYS_init_module, zeros, 1L, ""));
    say("a system call of x32", syscall(0x40000000 + SYS_getpid));
    fflush(0);
    pid_t child = fork();
    if (child == 0) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
        _exit(result > 0 ? 0 : 1);
    }
    int status = 0;
    errno = EPERM;
    say("a system call of i386", child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : -1);
}

static void resources(const char *limit) {
    long count = 0, mib = 0;
    char block[1 << 16] = {1};
    int file = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
    if (file < 0)
        say("fill /dev/shm", -1);
    else {
        while (write(file, block, sizeof block) == sizeof block)
            if (++count == (1L << 30) / (long)sizeof block) break;
        say("fill /dev/shm", count == (1L << 30) / (long)sizeof block ? 0 : -1);
        close(file);
    }
    while (mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        if ((mib += 64) > 1 << 20) break;
    say("map a terabyte", mib > 1 << 20 ? 0 : -1);
    /* Not all stay: the first child that cannot have children ends the attempt. */
    if (!strcmp(limit, "0")) return;
    for (count = 0; count < atol(limit); count++) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) for (;;) poll(0, 0, -1);
    }
    say("fork without end", count == atol(limit) ? 0 : -1);
}

int main(int count, char **words) {
    if (count != 10) return 2;
    report = atoi(words[1]);
    signal(SIGXFSZ, SIG_IGN);
    files(words[2], words[3], words[4], words[5]);
    network(words[6], words[7], words[8]);
    processes(atoi(words[5]));
    kernel();
    resources(words[9]);
    dprintf(report, "end\n");
    return 0;
}
