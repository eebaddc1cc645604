"""Two hosts that take turns at one database: what the probe counts, on one directory and on several that differ."""

from __future__ import annotations

from pathlib import Path

from rig.analysis.documents.guestprobes.sqlite import PROBES

ROWS = 24


def test_hosts_that_share_everything_lose_nothing_and_an_exclusive_lock_keeps_the_other_out(tmp_path: Path) -> None:
    found = PROBES["wal"]([str(tmp_path)] * 3)
    for name in ("hosts", "processes", "delete"):
        assert (ROWS, 0) == (found[f"{name}_acked"], found[f"{name}_harm"])
    assert (ROWS // 2, ROWS // 2, 0) == tuple(found[f"exclusive_{word}"] for word in ("acked", "refused", "lost"))


def test_hosts_that_share_nothing_are_refused_and_the_server_misses_all_that_was_acknowledged(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("first", "second", "server")]
    for folder in folders:
        Path(folder).mkdir()
    found = PROBES["wal"](folders)
    assert (ROWS // 2, ROWS // 2) == (found["hosts_acked"], found["hosts_refused"])
    assert (ROWS // 2, 1) == (found["hosts_lost"], found["hosts_damaged"])
    assert ROWS // 2 + ROWS // 2 + 1 == found["hosts_harm"]
    # Both processes are on the first host, and the server still has nothing.
    assert (ROWS, 0, ROWS) == tuple(found[f"processes_{word}"] for word in ("acked", "refused", "lost"))
