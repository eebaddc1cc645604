#!/usr/bin/python3
"""A log with group commit under the rig, in Python: one client syncs for all that have written, the others wait for it.

It shows what the protocol can say: several clients at work, a step by name, and a transaction that failed.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib

SIZE = 600


def record(number, seed):
    text = f"{number} {seed} ".ljust(SIZE - 9, "x")
    return f"{text}{zlib.crc32(text.encode()):08x}\n".encode()


def numbers(seed):
    """Return the numbers of the records from the first to the last one that is whole."""
    found = []
    content = open("log", "rb").read() if os.path.exists("log") else b""
    for begin in range(0, len(content), SIZE):
        number = content[begin : begin + SIZE].split(b" ")[0]
        if not number.isdigit() or content[begin : begin + SIZE] != record(int(number), seed):
            break
        found.append(int(number))
    return found


class Log:
    def __init__(self, seed):
        self.seed = seed
        self.file = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        # What a cut has left after the last whole record goes, before new ones are appended.
        self.written = self.synced = SIZE * len(numbers(seed))
        os.ftruncate(self.file, self.written)
        self.folder = os.open(".", os.O_RDONLY)
        # The name of the file is durable only with its directory.
        os.fsync(self.folder)
        self.changed = threading.Condition()
        self.is_syncing = False
        self.failure_count = 0

    def commit(self, number):
        """Append a record and wait until it is durable."""
        with self.changed:
            failure_count = self.failure_count
            if os.write(self.file, record(number, self.seed)) < SIZE:
                os.ftruncate(self.file, self.written)
                raise OSError("the disk is full")
            self.written += SIZE
            own = self.written
            while self.synced < own:
                if self.is_syncing:
                    self.changed.wait()
                else:
                    self.lead()
                if self.failure_count > failure_count:
                    raise OSError("a sync failed")

    def lead(self):
        """Sync what has been written until now. What is written meanwhile is for the next leader."""
        self.is_syncing = True
        covered = self.written
        self.changed.release()
        try:
            os.fdatasync(self.file)
        except OSError:
            covered = 0
        self.changed.acquire()
        self.is_syncing = False
        if covered:
            self.synced = covered
        else:
            # What was written is in doubt, and a second sync would not say so.
            self.failure_count += 1
            self.written = self.synced
            os.ftruncate(self.file, self.written)
        self.changed.notify_all()

    def checkpoint(self, number):
        """Write durably up to which record the log was whole."""
        with self.changed:
            with open("new", "w") as file:
                print(number, file=file, flush=True)
                os.fsync(file.fileno())
            os.rename("new", "checkpoint")
            os.fsync(self.folder)


def run(seed, count, clients, after):
    log = Log(seed)
    oks = [threading.Semaphore(0) for _ in range(clients)]

    def client(first):
        for number in range(first, count + 1, clients):
            if clients > 1:
                print(f"begin {number}\n", end="", flush=True)
            try:
                log.commit(number)
                is_step = number % 10 == 0
                if is_step:
                    log.checkpoint(number)
                answer = f"ack {number} checkpoint\n" if is_step else f"ack {number}\n"
            except OSError as error:
                answer = f"fail {number} {error}\n"
            print(answer, end="", flush=True)
            oks[number % clients].acquire()

    for first in range(after + 1, after + clients + 1):
        threading.Thread(target=client, args=(first,)).start()
    for number in range(after + 1, count + 1):
        # `ok`, or with several clients `ok i`.
        oks[int(input().removeprefix("ok") or number) % clients].release()


def recover(seed):
    shown = numbers(seed)
    if shown:
        # If only the program was killed, this may not be on the disk yet. What is shown must be.
        os.fsync(os.open("log", os.O_RDONLY))
    for number in shown:
        print("have", number)
    if os.path.exists("checkpoint"):
        number = int(open("checkpoint").read())
        if number not in shown:
            print("torn", number, "the checkpoint names a record that is not there")


words = sys.argv[1:]
if words[0] == "run":
    options = {name: int(value) for name, value in zip(words[1::2], words[2::2])}
    run(options["--seed"], options["--transactions"], options.get("--clients", 1), options.get("--after", 0))
else:
    recover(int(os.environ["RIG_SEED"]))
