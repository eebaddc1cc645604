"""`rig speed --fs` in real machines: virtual time, the modelled disk, and what only another file system can measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rig.analysis.judging import speed
from rig.campaign.campaign import Silent
from rig.front import cli
from rig.front.verbs.speed import _bench, _of_document
from rig.speed import session, speeds
from rig.speed.speeds import Speeds


def measure(folder: Path, *words: str) -> tuple[Speeds, str]:
    file = folder / "speed.json"
    result = CliRunner().invoke(cli.main, ["speed", *words, "--json", str(file)], env={"COLUMNS": "160"})
    assert 0 == result.exit_code, result.output
    return speeds.load(file), result.output


def test_virtual_figures_repeat_and_a_slower_disk_costs_those_that_flush(tmp_path: Path) -> None:
    found = {
        device: measure(tmp_path, "--fs", "ext4", "--device", device, "wal_full", "wal_off", "--transactions", "8")[0]
        for device in ("none", "hdd7200")
    }
    for device, one in found.items():
        assert 0 == one.spread
        assert (device, "ext4") == (one.virtual["device"], one.virtual["filesystem"])
        assert 1 == one.probe.flush_per_sync
        (disk,) = {trial.disk for trial in one.counted_trials("wal_full")}
        assert disk
        assert disk.flush_count
        assert disk.flush_count >= 8
    slower = {
        arm: found["hdd7200"].counted_trials(arm)[0].wall_ns / found["none"].counted_trials(arm)[0].wall_ns
        for arm in ("wal_full", "wal_off")
    }
    assert slower["wal_full"] > 2 > slower["wal_off"] > 0.5
    instructions = {
        (device, arm.name): arm.instructions_per_transaction or 0
        for device, one in found.items()
        for arm in speed.arm_speeds(one)
    }
    # The delays of a disk cost none, and a sync some. The thread that delays also carries out requests, uncounted.
    for arm, apart in (("wal_full", 0.15), ("wal_off", 0.03)):
        assert pytest.approx(instructions["none", arm], rel=apart) == instructions["hdd7200", arm]
    assert instructions["none", "wal_full"] > 1.5 * instructions["none", "wal_off"]
    # Where nothing waits, it is the whole time.
    trial = found["none"].counted_trials("wal_off")[0]
    assert 1 < (trial.busy_ns or 0) / trial.wall_ns < 1.1
    for one in found.values():
        for arm in one.arms:
            assert 1 == len({trial.busy_ns for trial in one.undisturbed_trials(arm)})
            assert 2 == len(one.undisturbed_trials(arm))
    assert found["hdd7200"].probe.sync_s > 0.008 > found["none"].probe.sync_s


def test_the_space_of_each_file_is_seen_and_a_map_takes_what_is_written(tmp_path: Path) -> None:
    found, shown = measure(
        tmp_path, "--fs", "ext4", "--device", "nvme", "sqlite-wal_full", "lmdb-default", "--transactions", "20"
    )
    log, memory = (next(one.space for one in found.trials if one.arm == arm and one.space) for arm in found.arms)
    (database,) = (name for name in log.files if "-" not in name)
    for name in (database, f"{database}-wal", f"{database}-shm"):
        assert log.files[name] > 0
        assert f"{name} " in shown
    for arm in speed.arm_speeds(found):
        assert arm.space_amplification
        assert arm.write_amplification
        # The ledger keeps some twenty kB, in files of a few pages each.
        assert 1 < arm.space_amplification < 100
    assert 4096 <= memory.peak_bytes < int(found.arms["lmdb-default"].read_back["map_size"])


def test_a_document_is_measured_on_the_file_system_that_it_is_about(tmp_path: Path) -> None:
    words = ("--document", "S3", "--scale", "0.001", "delete", "wal-*")
    found, shown = measure(tmp_path, "--fs", "btrfs.zstd", "--device", "hdd7200", *words)
    assert {"delete", "wal-nocow"} <= set(found.arms)
    # The option overrides the attribute that should do without compression, and on the plain file system nothing does.
    assert {"wal-nocompress"} == set(found.absent)
    assert "compressed all the same" in found.absent["wal-nocompress"]
    assert "btrfs" == found.filesystem
    assert any(option.startswith("compress-force=zstd") for option in found.options)
    assert "virtual: btrfs.zstd on the device hdd7200" in shown
    # No machine that verifies is made for it.
    assert "crash states are checked" not in shown


def test_the_arms_without_compression_are_measured_where_nothing_overrides_their_attribute(tmp_path: Path) -> None:
    words = ("--document", "S3", "--scale", "0.0005", "wal-nocompress")
    found, _ = measure(tmp_path, "--fs", "btrfs", "--device", "none", *words)
    assert not found.absent
    assert "wal-nocompress" in found.arms


def test_an_arm_that_the_file_system_cannot_have_is_left_out_with_the_reason(tmp_path: Path) -> None:
    found, _ = measure(tmp_path, "--fs", "ext4", "--device", "none", "--document", "S3", "--scale", "0.0005")
    assert {"delete", "wal"} == set(found.arms)
    assert "this file system does not know the attribute nocow" in found.absent["wal-nocow"]


def test_a_document_about_two_engines_is_measured_in_the_images_of_both() -> None:
    whole = _of_document("S4", 1, 0.001)
    arms = ("fillseq-wal", "binding-fillrandom-wal", "binding-fillrandom-nowal", "leveldb-fillrandom-batch100")
    # Arms that stand alone need no base.
    plan = replace(whole, arms={arm: (whole.arms[arm][0], replace(whole.arms[arm][1], base=arm)) for arm in arms})
    with _bench(plan, None, "ext4", "none", print) as bench:
        found = session.measure(plan, bench, 1, 1, Silent())
    assert {"rocksdb", "leveldb"} == {facts.engine for facts in found.arms.values()}
    assert "rocksdb-tools" in found.absent["fillseq-wal"]
    for arm in arms[1:]:
        (trial,) = found.counted_trials(arm)
        assert (1000, 116_000) == (trial.transactions, trial.user_bytes)
        assert {metric.name for metric in plan.metrics} == set(trial.metrics)
        logged = trial.metrics["write_amplification"] - trial.counts["write amplification without the log"]
        assert (logged > 1) is (arm != "binding-fillrandom-nowal")
    assert "written" == found.arms["binding-fillrandom-wal"].read_back["wal"]


def test_readers_read_beside_writers_in_virtual_time_too(tmp_path: Path) -> None:
    words = ("--rows", "2", "--filled", "20", "--writers", "2", "--readers", "2", "--pause-ms", "3")
    found, shown = measure(
        tmp_path, "--fs", "ext4", "--device", "emmc", "wal_full", "delete_full", *words, "--transactions", "4"
    )
    for trial in found.trials:
        assert (8, 16, 8) == (trial.transactions, trial.rows, len(trial.latencies_ns))
        assert trial.reads
        assert trial.reads.count >= 2
        assert trial.metrics["reads_per_s"] > 0
    # A delay of 5 ms ends at the second tick.
    assert 0.007 < found.probe.sync_s < 0.0085
    # In a rollback journal's commit the database is locked against readers, while its flushes take 8 ms each.
    longest_ns = {arm: found.counted_trials(arm)[0].reads.longest_ns for arm in found.arms}  # type: ignore[union-attr]
    (wal, journal) = longest_ns.values()
    assert journal > wal
    assert "reads/s" in shown


@pytest.mark.parametrize("arm", ["mariadb-default", "postgresql-default"])
def test_writers_of_a_server_share_the_flush_of_a_commit(tmp_path: Path, arm: str) -> None:
    words = ("--rows", "1", "--writers", "4", "--transactions", "24")
    found, _ = measure(tmp_path, "--fs", "ext4", "--device", "hdd7200", arm, *words)
    trial, _ = found.counted_trials(*found.arms)
    assert 96 == trial.transactions
    assert trial.disk
    # A writer alone needs a flush for each of its transactions, and four that always meet need one for four. How many
    # meet depends on the host; of 24 transactions, 17 needed a flush of their own once.
    assert 24 <= (trial.disk.flush_count or 0) < 0.85 * trial.transactions
    # The data directory of the server is watched too.
    (space,) = (one.space for one in found.trials if one.space)
    assert len(space.files) > 50
    assert len(space.files) >= len(space.groups)
    assert space.peak_bytes > 4 << 20
