"""Redis under the rig: transaction i sets two keys in one MULTI, and counts as durable when EXEC has answered."""

from __future__ import annotations

import socket
import subprocess
import sys
import time


class Redis:
    """A server on the files of the current folder, and a connection to it."""

    def __init__(self, appendfsync):
        options = {
            "port": "0",
            "unixsocket": "redis.sock",
            "save": "",
            "appendonly": "yes",
            "appendfsync": appendfsync,
            # A log that has doubled is rewritten; by default only one of 64 MB or more.
            "auto-aof-rewrite-min-size": "4kb",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self.server = subprocess.Popen(["/usr/bin/redis-server", *words], stdout=sys.stderr)
        while self.server.poll() is None:
            self.connection = socket.socket(socket.AF_UNIX)
            try:
                self.connection.connect("redis.sock")
            except OSError:
                time.sleep(0.02)
                continue
            self.answers = self.connection.makefile("rb")
            # While it reads its files it refuses all else.
            while self.ask("PING").startswith("-LOADING"):
                time.sleep(0.02)
            return
        sys.exit("redis-server did not start")

    def ask(self, command):
        """Send a command and return its answer."""
        self.connection.sendall(command.encode() + b"\r\n")
        return self.answer()

    def answer(self):
        line = self.answers.readline().decode().rstrip()
        if not line or (line.startswith("-") and not line.startswith("-LOADING")):
            sys.exit(f"the server said: {line}")
        if line.startswith("*"):
            return [self.answer() for _ in range(int(line[1:]))]
        if line.startswith("$") and line != "$-1":
            return self.answers.read(int(line[1:]) + 2).decode().rstrip()
        return line

    def stop(self):
        self.connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        self.server.wait()


def run(redis, seed, count, after):
    for i in range(after + 1, count + 1):
        value = f"{seed}:{i}:" * 40
        for command in ("MULTI", f"SET first:{i} {value}", f"SET second:{i} {value}", "EXEC"):
            redis.ask(command)
        print("ack", i, flush=True)
        assert input() == "ok"


def recover(redis):
    for i in sorted({int(key.split(":")[1]) for key in redis.ask("KEYS *")}):
        first, second = redis.ask(f"MGET first:{i} second:{i}")
        print(f"have {i}" if first == second else f"torn {i} its two keys differ")


def main(appendfsync):
    redis = Redis(appendfsync)
    if sys.argv[1] == "run":
        run(redis, sys.argv[3], int(sys.argv[5]), int(sys.argv[7]) if len(sys.argv) > 7 else 0)
    else:
        recover(redis)
    redis.stop()
