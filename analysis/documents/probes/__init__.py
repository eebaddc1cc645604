"""Small real experiments without a crash, by the names that the files of claims use."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Mapping

from rig.analysis.documents.probes import concurrency, copies, costs, dbbench, figures, logfile, modes, reads
from rig.analysis.documents.probes.probe import Figures, Probe, Unmeasurable

PROBES: Mapping[str, Probe] = {
    probe.__name__: probe
    for probe in (
        concurrency.burst,
        concurrency.commit_meets_reader,
        concurrency.one_writer,
        concurrency.reader_under_write,
        concurrency.starvation,
        copies.when_there_is_a_log,
        copies.without_log,
        costs.bytes_written,
        costs.checkpoints,
        costs.journal_of_one_row,
        costs.large_pages,
        costs.page_sizes,
        costs.peak_space,
        costs.syncs_and_locks,
        costs.syncs_of_log,
        costs.table_size,
        costs.unsynced_commits,
        costs.write_before_commit,
        dbbench.amplification,
        dbbench.flags,
        dbbench.kill_while_filling,
        dbbench.log_arms,
        figures.one_clock,
        figures.one_measurement,
        logfile.append_only,
        logfile.first_checkpoint,
        logfile.idle,
        logfile.index_size,
        logfile.manual_checkpoint,
        logfile.reader_sees_log,
        logfile.sizes_by_page,
        logfile.truncation,
        modes.any_application,
        modes.default_mode,
        modes.enabling,
        modes.journal_left_out,
        modes.leaving,
        modes.levels,
        modes.persistence,
        modes.vacuum,
        reads.reads_beside_log,
    )
}
__all__ = ["PROBES", "Figures", "Probe", "Unmeasurable", "library"]


def library() -> str:
    """Return what the probes ran on."""
    python = platform.python_version()
    return f"SQLite {sqlite3.sqlite_version} of Python {python} on {platform.system()} {platform.release()}"
