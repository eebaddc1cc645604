/* A key-value log under the rig: each value is appended to `values`, then an entry with its checksum to `index`.
   Build it with: cc -static -o kvlog kvlog.c */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VALUE_BYTES = 900 };
struct entry { unsigned number, checksum; };

static struct entry entry_of(unsigned number, const char *value) {
    unsigned checksum = number;
    for (int i = 0; i < VALUE_BYTES; i++) checksum = checksum * 33 ^ (unsigned char)value[i];
    return (struct entry){number, checksum};
}

static void must(int is_true, const char *what) {
    if (!is_true) { perror(what); exit(1); }
}

/* Append a value and then its entry, durably; return whether that could be done. */
static int put(int values, int index, unsigned seed, unsigned number) {
    char value[VALUE_BYTES];
    for (int i = 0; i < VALUE_BYTES; i++) value[i] = 'a' + (seed + number * 7 + i * i) % 26;
    struct entry entry = entry_of(number, value);
    return write(values, value, sizeof value) == sizeof value && fdatasync(values) == 0
        && write(index, &entry, sizeof entry) == sizeof entry && fdatasync(index) == 0;
}

static void keep(int values, int index, unsigned entries) {
    must(!ftruncate(values, entries * VALUE_BYTES) && !ftruncate(index, entries * sizeof(struct entry)), "truncate");
}

static void run(unsigned seed, unsigned count, unsigned after) {
    int values = open("values", O_RDWR | O_CREAT | O_APPEND, 0644), index = open("index", O_RDWR | O_CREAT | O_APPEND, 0644);
    must(values >= 0 && index >= 0 && fsync(open(".", O_RDONLY)) == 0, "open");
    /* What a cut has left of later transactions goes, before new ones are appended. */
    unsigned kept = 0;
    for (struct entry entry; read(index, &entry, sizeof entry) == sizeof entry && entry.number <= after;) kept++;
    keep(values, index, kept);
    for (unsigned number = after + 1; number <= count; number++) {
        char answer[8];
        if (put(values, index, seed, number)) {
            kept++;
            printf("ack %u\n", number);
        } else {
            /* What was written is in doubt, and a second sync would not say so. */
            printf("fail %u %s\n", number, strerror(errno));
            keep(values, index, kept);
        }
        fflush(stdout);
        must(fgets(answer, sizeof answer, stdin) && !strcmp(answer, "ok\n"), "no ok");
    }
}

static void recover(void) {
    int values = open("values", O_RDONLY), index = open("index", O_RDONLY);
    struct entry entry;
    for (unsigned last = 0; read(index, &entry, sizeof entry) == sizeof entry; last++) {
        char value[VALUE_BYTES] = {0};
        ssize_t size = read(values, value, sizeof value);
        /* Numbers of transactions that failed are left out. */
        if (entry.number > last) last = entry.number - 1;
        if (size == sizeof value && entry.number == last + 1 && entry.checksum == entry_of(last + 1, value).checksum)
            printf("have %u\n", last + 1);
        else
            printf("torn %u the value does not have the checksum of its entry\n", last + 1);
    }
}

int main(int argc, char **argv) {
    if ((argc == 6 || argc == 8) && !strcmp(argv[1], "run"))
        run(atoi(argv[3]), atoi(argv[5]), argc == 8 ? atoi(argv[7]) : 0);
    else if (argc == 2 && !strcmp(argv[1], "recover")) recover();
    else return 2;
}
