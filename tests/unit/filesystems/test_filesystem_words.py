"""What XFS, Btrfs, f2fs and the kernel say of a file system, as read by the rig; and the modules of their drivers."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.contract.errors import UsageError
from rig.engines import engine_named, engines
from rig.filesystems import (
    Attributed,
    Mirrored,
    btrfs,
    f2fs,
    filesystem_named,
    filesystems,
    kernel,
    md,
    xfs,
)
from rig.images import recipes
from rig.images.warmup import warm_orders
from rig.planning import matrix

WITH_MODULES = (
    "btrfs",
    "btrfs.flushoncommit",
    "btrfs.nocow",
    "btrfs.nodatacow",
    "btrfs.raid1",
    "btrfs.zstd",
    "ext4.raid1",
    "f2fs",
    "f2fs.nobarrier",
    "f2fs.strict",
    "xfs",
)
# Linux 6.12, as syslog(2) hands them over.
MOUNTED = """\
<5>[   18.950082] XFS (dm-1): Mounting V5 Filesystem 12345678-1234-1234-1234-123456789abc
<5>[   18.960112] XFS (dm-1): Starting recovery (logdev: internal)
<5>[   18.980925] XFS (dm-1): Ending recovery (logdev: internal)
<6>[   50.605923] BTRFS info (device dm-1): first mount of filesystem 12345678-1234-1234-1234-123456789abc
<6>[   50.605999] BTRFS info (device dm-1): start tree-log replay
"""
XFS_ERRORS = """\
<1>[   42.559376] XFS (dm-1): Metadata CRC error detected at xfs_dir3_block_read_verify+0xd4/0x110 [xfs], block 0xc0
<1>[   42.571462] 00000000: 58 44 42 33 21 93 af d3 00 00 00 00 00 00 00 c0  XDB3!...........
<3>[   42.587288] XFS (dm-1): metadata I/O error in "xfs_da_read_buf+0xfd/0x190 [xfs]" at daddr 0xc0 len 8 error 74
"""
BTRFS_WARNINGS = """\
<4>[   54.320208] BTRFS warning (device dm-1): csum failed root 5 ino 318 off 0 csum 0xf8ae2655 mirror 1
<3>[   54.320208] BTRFS error (device dm-1): bdev /dev/dm-1 errs: wr 0, rd 0, flush 0, corrupt 1, gen 0
<3>[   75.929313] BTRFS error (device dm-1 state E): commit super ret -30
"""
# A checkpoint with a wrong checksum is one that was being written at the cut: a warning, and no error.
F2FS_RECOVERED = """\
<4>[   31.000001] F2FS-fs (dm-1): invalid crc value
<5>[   31.000002] F2FS-fs (dm-1): Mounted with checkpoint version = 6b8b4569
"""
F2FS_ERROR = """\
<3>[   42.000001] F2FS-fs (dm-1): Cannot recover all fsync data errno=-117
"""
TEXT = st.text(st.characters(codec="ascii", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e"), max_size=60)


def test_every_module_is_in_the_image_after_those_that_it_needs() -> None:
    for one in filesystems():
        on_demand = list(recipes.of_engine(engine_named("sqlite"), one.kernel).modules_on_demand)
        places = [on_demand.index(name) for name in one.modules]
        assert sorted(places) == places
        assert bool(places) is (one.word in WITH_MODULES)


def test_no_machine_pays_for_a_driver_that_has_to_be_loaded() -> None:
    words = {orders.filesystem for orders in warm_orders((), engines())}
    assert words
    assert not [word for word in words if filesystem_named(word).modules]


def test_where_no_file_can_be_found_on_the_disk_no_recovery_is_cut() -> None:
    with pytest.raises(UsageError, match="btrfs cannot be measured under recoverycut: it does not tell where on"):
        matrix.select(["sqlite-btrfs-wal_full_recoverycut"])
    assert matrix.select(["sqlite-xfs-wal_full_recoverycut"])


def test_a_late_discard_needs_a_mount_that_discards_and_no_other_has_one() -> None:
    for word, options in (
        ("btrfs", "discard=sync"),
        ("f2fs", "discard"),
        ("btrfs.zstd", "discard=sync"),
        ("xfs", "discard"),
    ):
        (late,) = matrix.select([f"sqlite-{word}-wal_full_discard"])
        (other,) = matrix.select([f"sqlite-{word}-wal_full_powercut"])
        assert options == late.mount_options.split(",")[-1]
        assert not {"discard", "discard=sync"} & set(other.mount_options.split(","))


def test_a_recovery_after_a_cut_is_no_error() -> None:
    assert 0 == xfs.errors(MOUNTED, "/dev/dm-1")
    assert 0 == btrfs.warnings(MOUNTED, "/dev/dm-1")
    assert 0 == f2fs.errors(F2FS_RECOVERED, "dm-1")


def test_errors_of_a_device_are_counted_and_no_others() -> None:
    everything = MOUNTED + XFS_ERRORS + BTRFS_WARNINGS + F2FS_RECOVERED + F2FS_ERROR
    assert 2 == xfs.errors(everything, "/dev/dm-1")
    assert 3 == btrfs.warnings(everything, "/dev/dm-1")
    assert 1 == f2fs.errors(everything, "dm-1")
    for other in ("/dev/dm-2", "/dev/dm-11", "/dev/dm-"):
        assert (0, 0) == (xfs.errors(everything, other), btrfs.warnings(everything, other))
        assert 0 == f2fs.errors(everything, other.rpartition("/")[2])
    # Messages about a mirror name either of its disks.
    assert 3 == btrfs.warnings(everything)
    assert 4 == btrfs.warnings(everything + BTRFS_WARNINGS.splitlines()[0].replace("dm-1", "dm-2"))


@pytest.mark.parametrize(("status", "needs"), [("0\n", False), ("1\n", False), ("8a\n", False), ("85\n", True)])
def test_the_driver_says_by_a_bit_that_it_needs_a_check(status: str, needs: bool) -> None:
    assert needs is f2fs.needs_check(status)


@given(st.lists(st.tuples(st.integers(0, 7), TEXT), max_size=8), st.integers(0, 7))
def test_messages_are_told_by_their_level_alone(messages: list[tuple[int, str]], level_max: int) -> None:
    text = "".join(
        f"<{level}>[{number:5}.000001] XFS (dm-1): {words}\n" for number, (level, words) in enumerate(messages)
    )
    expected = [f"XFS (dm-1): {words}" for level, words in messages if level <= level_max]
    assert expected == kernel.messages_like(text, xfs.beginning("/dev/dm-1"), level_max)


@given(TEXT)
def test_anything_that_is_no_message_is_none(text: str) -> None:
    assert [] == kernel.messages_like(text, xfs.beginning("/dev/dm-1"), 7)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5))
def test_the_errors_of_a_device_are_summed(counts: list[int]) -> None:
    assert sum(counts) == btrfs.error_count("".join(f"{name}_errs {count}\n" for name, count in enumerate(counts)))


PART = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)


@given(st.dictionaries(PART, PART, min_size=1, max_size=5))
def test_the_options_of_a_mount_are_those_of_its_device(options: dict[str, str]) -> None:
    text = "".join(f"/dev/{name} /mnt/{name} xfs {option} 0 0\n" for name, option in options.items())
    for name, option in options.items():
        assert option == kernel.options_of(text, f"/dev/{name}")
    with pytest.raises(LookupError, match="/dev/- is not mounted"):
        kernel.options_of(text, "/dev/-")


XFS_INFO = """\
meta-data=/dev/dm-3              isize=512    agcount=4, agsize=19200 blks
         =                       sectsz=512   attr=2, projid32bit=1
log      =internal log           bsize=4096   blocks=16384, version=2
"""


def test_a_format_is_told_without_the_device() -> None:
    expected = "isize=512 agcount=4, agsize=19200 blks; sectsz=512 attr=2, projid32bit=1; "
    assert expected + "log =internal log bsize=4096 blocks=16384, version=2" == xfs.geometry(XFS_INFO)


SUPERBLOCK = """\
superblock: bytenr=65536, device=/dev/dm-3
---------------------------------------------------------
csum_type\t\t0 (crc32c)
csum\t\t\t0x0a124c8c [match]
compat_ro_flags\t\t0x3
\t\t\t( FREE_SPACE_TREE |
\t\t\t  FREE_SPACE_TREE_VALID )
cache_generation\t0
"""


def test_a_superblock_is_told_by_what_does_not_change_with_each_commit() -> None:
    expected = "csum_type: 0 (crc32c); compat_ro_flags: 0x3 ( FREE_SPACE_TREE | FREE_SPACE_TREE_VALID )"
    assert expected == btrfs.superblock(SUPERBLOCK)


@given(st.binary(max_size=40))
def test_the_checksum_of_a_superblock_is_that_of_castagnoli(data: bytes) -> None:
    # RFC 3720, B.4
    assert 0x8A9136AA == btrfs.crc32c(bytes(32))
    assert 0x46DD794E == btrfs.crc32c(bytes(range(32)))
    # Of data with its own checksum after it, it is always the same.
    assert 0x48674BC7 == btrfs.crc32c(data + btrfs.crc32c(data).to_bytes(4, "little"))


@given(st.integers(0, 4095), st.integers(0, 7))
def test_a_superblock_with_a_flipped_bit_is_not_sound(place: int, bit: int) -> None:
    body = bytes(32) + b"_BHRfS_M" + bytes(4096 - 72)
    block = bytearray(btrfs.crc32c(body).to_bytes(32, "little") + body)
    assert btrfs.is_sound(bytes(block))
    block[place] ^= 1 << bit
    # crc32c has four of the 32 bytes that are there for a checksum.
    assert (4 <= place < 32) is btrfs.is_sound(bytes(block))


@given(st.integers(0, 4), st.binary(min_size=12, max_size=12), st.integers(0, 4095), st.integers(0, 7))
def test_a_superblock_of_a_mirror_is_not_sound_with_a_flipped_bit_in_what_is_summed(
    disks_max: int, body: bytes, place: int, bit: int
) -> None:
    block = bytearray(4096)
    struct.pack_into("<4s12s", block, 0, bytes.fromhex("fc4e2ba9"), body)
    struct.pack_into("<I", block, 220, disks_max)
    block[256 : 256 + 2 * disks_max] = bytes(range(1, 1 + 2 * disks_max))
    struct.pack_into("<I", block, 216, md.checksum(bytes(block)))
    assert md.is_sound(bytes(block))
    block[place] ^= 1 << bit
    assert (place >= 256 + 2 * disks_max) is md.is_sound(bytes(block))


def test_a_check_is_told_without_its_progress() -> None:
    said = "Phase 1 - find and verify superblock...\n        - agno = 0\nbad primary superblock - bad CRC !!!\n"
    assert "bad primary superblock - bad CRC !!!" == xfs.Xfs().complaints(said)
    said = "[3/8] checking extents\nref mismatch on [30720000 16384]\ntotal csum bytes: 0\nERROR: errors found\n"
    assert "ref mismatch on [30720000 16384] ERROR: errors found" == btrfs.Btrfs("btrfs").complaints(said)

    said = "[FSCK] Max image size: 20 MB\n[FSCK] other corrupted bugs          [Fail]\n[ASSERT] (chk:1) --> bad\nDone\n"
    assert "[FSCK] other corrupted bugs [Fail] [ASSERT] (chk:1) --> bad" == f2fs.F2fs("f2fs").complaints(said)
    assert "no superblock" == f2fs.F2fs("f2fs").complaints("no\nsuperblock\n")


def test_what_dump_f2fs_says_of_the_format_is_told_without_its_checkpoint() -> None:
    said = "Info: superblock features = 0 : \nInfo: total FS sectors = 524288 (256 MB)\nInfo: CKPT version = 6b8b4567\n"
    assert "superblock features: 0 :; total FS sectors: 524288 (256 MB)" == f2fs.format_of(said)


def test_variants_of_f2fs_differ_in_how_they_sync_and_read_it_back() -> None:
    for one, mode in zip(f2fs.VARIANTS, ("posix", "strict", "nobarrier"), strict=True):
        assert (f"fsync_mode={mode}",) == one.reads_back
        assert f"nodiscard,fsync_mode={mode}" == one.mount_options


def test_variants_of_btrfs_differ_in_what_they_mount_with_and_read_it_back() -> None:
    plain, *others = btrfs.VARIANTS
    variants = [one for one in others if not isinstance(one, Attributed | Mirrored)]
    assert {"btrfs.flushoncommit", "btrfs.nodatacow", "btrfs.zstd"} == {one.word for one in variants}
    for one in variants:
        assert set(plain.reads_back) < set(one.reads_back)
        assert one.mount_options.startswith(f"{plain.mount_options},")
        as_plain = replace(one, word=plain.word, mount_options=plain.mount_options, reads_back=plain.reads_back)
        assert plain == replace(as_plain, keeps_order=False)
