"""Kills go on while the file system has space and room for files."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.guest.programs.kills import has_space


@given(blocks=st.integers(1, 1 << 20), files=st.integers(0, 1 << 20), data=st.data())
def test_there_is_space_if_a_sixteenth_of_the_blocks_and_an_eighth_of_the_files_is_free(
    blocks: int, files: int, data: st.DataObject
) -> None:
    free, unused = data.draw(st.integers(0, blocks)), data.draw(st.integers(0, files))
    # See statvfs(3).
    told = os.statvfs_result((4096, 4096, blocks, free, free, files, unused, unused, 0, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: told)
        assert has_space("") is (free >= blocks / 16 and unused >= files / 8)
