"""Two hosts that take turns at one database; each is a process that reaches it through a mount of its own.

In its turn a host reads how many rows there are, and adds one. A row that was acknowledged to either host must be seen
by the other in its next turn, and be there at the end where the files are, on the server.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

_TURNS = 12
# Hosts take turns, so only a host that keeps its lock makes the other wait.
_WAIT_S = 0.1
# Small enough that the log starts over a few times.
_CHECKPOINT_PAGES = 8
_FILLER = "x" * 500
_ANSWER_LIMIT_S = 60
_SEEN, _DONE = "seen", "done"

Figures = Mapping[str, int]


def wal(places: Sequence[str]) -> Figures:
    """Have four pairs write: hosts in WAL mode, processes of one host, hosts with exclusive locks, hosts with DELETE.

    The places are directories of the first host, of the second host, and of the server.
    """
    first, second, server = places
    return {
        **_figures("hosts", (first, second), server, "wal"),
        **_figures("processes", (first, first), server, "wal"),
        **_figures("exclusive", (first, second), server, "wal", locks="exclusive"),
        **_figures("delete", (first, second), server, "delete"),
    }


PROBES: Mapping[str, Callable[[Sequence[str]], Figures]] = {"wal": wal}


def _figures(name: str, folders: Sequence[str], server: str, mode: str, *, locks: str = "normal") -> Figures:
    """Return how many rows were acknowledged, and what went wrong; `harm` is the sum of all that went wrong.

    Rows are `refused`, or `lost` at the end; a host sees a `stale` number of rows; the file is `damaged`.
    """
    file = f"{name}.db"
    made = _open(f"{folders[0]}/{file}", mode)
    made.execute("CREATE TABLE entry(host, turn, filler)")
    made.execute("CREATE INDEX by_turn ON entry(turn, host)")
    made.close()
    acked: set[tuple[int, int]] = set()
    refused = stale = 0
    players = [_Player(f"{folder}/{file}", number, mode, locks) for number, folder in enumerate(folders)]
    for turn in range(_TURNS):
        for number, player in enumerate(players):
            seen, done = player.play(turn)
            stale += seen not in {None, len(acked)}
            refused += not done
            acked |= {(number, turn)} if done else set()
    for player in players:
        player.end()
    rows, damaged = _survivors(f"{server}/{file}")
    harm = {"refused": refused, "stale": stale, "lost": len(acked - rows), "damaged": damaged}
    figures = {"acked": len(acked), **harm, "harm": sum(harm.values())}
    return {f"{name}_{word}": value for word, value in figures.items()}


def _survivors(path: str) -> tuple[set[tuple[int, int]], int]:
    """Return the rows of a database and whether it is damaged; an unreadable database has no rows."""
    try:
        connection = sqlite3.connect(path, timeout=_WAIT_S)
        try:
            answers = connection.execute("PRAGMA integrity_check").fetchall()
            return set(connection.execute("SELECT host, turn FROM entry NOT INDEXED")), int(answers != [("ok",)])
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return set(), 1


class _Player:
    """One host, in a process of its own."""

    def __init__(self, path: str, number: int, mode: str, locks: str) -> None:
        fork = multiprocessing.get_context("fork")
        self._channel, theirs = fork.Pipe()
        self._process = fork.Process(target=_play, args=(path, number, mode, locks, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def play(self, turn: int) -> tuple[int | None, bool]:
        """Return how many rows the host saw (None if it could not read), and whether it added its own row."""
        answer = self._ask(turn)
        return answer.get(_SEEN), _DONE in answer

    def end(self) -> None:
        """Have the host close the database, and wait for its end."""
        self._ask(None)
        self._process.join(_ANSWER_LIMIT_S)

    def _ask(self, turn: int | None) -> dict[str, int]:
        """Return what the host answers; nothing if it died."""
        with suppress(EOFError, BrokenPipeError):
            self._channel.send(turn)
            if self._channel.poll(_ANSWER_LIMIT_S):
                return dict(self._channel.recv())
        return {}


def _play(path: str, number: int, mode: str, locks: str, channel: Connection) -> None:
    connection: sqlite3.Connection | None = None
    while (turn := channel.recv()) is not None:
        answer = {}
        try:
            connection = connection or _open(path, mode, locks)
            (answer[_SEEN],) = connection.execute("SELECT count(*) FROM entry NOT INDEXED").fetchone()
            connection.execute("INSERT INTO entry VALUES (?, ?, ?)", (number, turn, _FILLER))
            answer[_DONE] = 1
        except sqlite3.Error:
            pass
        channel.send(answer)
    if connection:
        with suppress(sqlite3.Error):
            connection.close()
    channel.send({})


def _open(path: str, mode: str, locks: str = "normal") -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
    try:
        for setting in (f"locking_mode={locks}", f"journal_mode={mode}", f"wal_autocheckpoint={_CHECKPOINT_PAGES}"):
            connection.execute(f"PRAGMA {setting}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
