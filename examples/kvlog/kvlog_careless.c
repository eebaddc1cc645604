/* A key-value log with a sync too few: each value is appended to `values`, then an entry with its checksum to `index`.
   Build it with: cc -static -o kvlog_careless kvlog_careless.c */
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

static void run(unsigned seed, unsigned count, unsigned after) {
    int values = open("values", O_RDWR | O_CREAT | O_APPEND, 0644), index = open("index", O_RDWR | O_CREAT | O_APPEND, 0644);
    must(values >= 0 && index >= 0 && fsync(open(".", O_RDONLY)) == 0, "open");
    /* What a cut has left of later transactions goes, before new ones are appended. */
    must(!ftruncate(values, after * VALUE_BYTES) && !ftruncate(index, after * sizeof(struct entry)), "truncate");
    for (unsigned number = after + 1; number <= count; number++) {
        char value[VALUE_BYTES], answer[8];
        for (int i = 0; i < VALUE_BYTES; i++) value[i] = 'a' + (seed + number * 7 + i * i) % 26;
        struct entry entry = entry_of(number, value);
        must(write(values, value, sizeof value) == sizeof value, "values");
        must(write(index, &entry, sizeof entry) == sizeof entry, "index");
        must(fdatasync(index) == 0, "index");
        printf("ack %u\n", number);
        fflush(stdout);
        must(fgets(answer, sizeof answer, stdin) && !strcmp(answer, "ok\n"), "no ok");
    }
}

static void recover(void) {
    int values = open("values", O_RDONLY), index = open("index", O_RDONLY);
    struct entry entry;
    for (unsigned number = 1; read(index, &entry, sizeof entry) == sizeof entry; number++) {
        char value[VALUE_BYTES] = {0};
        ssize_t size = read(values, value, sizeof value);
        if (size == sizeof value && entry.number == number && entry.checksum == entry_of(number, value).checksum)
            printf("have %u\n", number);
        else
            printf("torn %u the value does not have the checksum of its entry\n", number);
    }
}

int main(int argc, char **argv) {
    if ((argc == 6 || argc == 8) && !strcmp(argv[1], "run"))
        run(atoi(argv[3]), atoi(argv[5]), argc == 8 ? atoi(argv[7]) : 0);
    else if (argc == 2 && !strcmp(argv[1], "recover")) recover();
    else return 2;
}
