"""Save a machine and restore it over QMP: `qemu.qmp`, on a socket that is already connected.

The saved state leaves out RAM (`x-ignore-shared`), which is in a file already.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rig.contract.errors import VmError
from rig.machines.limit import Limit

if TYPE_CHECKING:
    from qemu.qmp import QMPClient

_POLL_S = 0.002
# The name of a descriptor that QEMU was handed.
_STATE = "state"
_IGNORE_SHARED = {"capabilities": [{"capability": "x-ignore-shared", "state": True}]}


def save(monitor: socket.socket, state: Path, limit: Limit, *, is_restored: bool = False) -> None:
    """Stop a machine and save its state; `is_restored` if it was itself restored. Raise VmError or TimeoutError."""
    asyncio.run(_within(limit, _save(monitor, state, is_restored=is_restored)))


def restore(monitor: socket.socket, state_fd: int, limit: Limit) -> None:
    """Restore a machine started with `-incoming defer`, from a descriptor that QEMU inherited, and let it run.

    Raises VmError or TimeoutError.
    """
    asyncio.run(_within(limit, _restore(monitor, state_fd)))


async def _within(limit: Limit, work: Coroutine[None, None, None]) -> None:
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=limit.look_again_s))[0]:
        if limit.is_over:
            task.cancel()
            await asyncio.wait([task])
            raise TimeoutError(str(limit))
    await task


async def _save(monitor: socket.socket, state: Path, *, is_restored: bool) -> None:
    async with _connect(monitor, is_known=is_restored) as client:
        await client.execute("stop")
        reading, writing = os.pipe()
        with open(reading, "rb") as source, open(state, "wb") as target:
            try:
                client.send_fd_scm(writing)
                await client.execute("getfd", {"fdname": _STATE})
            finally:
                os.close(writing)
            copied = asyncio.create_task(asyncio.to_thread(shutil.copyfileobj, source, target))
            await client.execute("migrate", {"uri": f"fd:{_STATE}"})
            await _wait_for_migration(client)
            await copied


async def _restore(monitor: socket.socket, state_fd: int) -> None:
    async with _connect(monitor) as client:
        await _start_incoming(client, state_fd)
        await _wait_for_migration(client)
        await client.execute("cont")


async def _start_incoming(client: QMPClient, state_fd: int) -> None:
    from qemu.qmp import ExecuteError

    try:
        await client.execute("migrate-incoming", {"uri": f"file:/proc/self/fd/{state_fd}"})
    except ExecuteError as error:
        # QEMU 7.2 has no "file:". 11.1 refuses a file as "fd:" and then refuses everything else, so "file:" goes first.
        if "unknown migration protocol" not in str(error):
            raise
        await client.execute("migrate-incoming", {"uri": f"fd:{state_fd}"})


async def _wait_for_migration(client: QMPClient) -> None:
    while True:
        answer: Any = await client.execute("query-migrate")
        if answer.get("status") == "completed":
            return
        if answer.get("status") == "failed":
            raise VmError(f"QEMU could not save or restore a machine: {answer.get('error-desc')}")
        await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def _connect(monitor: socket.socket, *, is_known: bool = False) -> AsyncIterator[QMPClient]:
    """Connect; QEMU greets and negotiates only once, so skip that if it `is_known` from an earlier connection."""
    from qemu.qmp import QMPClient

    client = QMPClient()
    client.await_greeting = client.negotiate = not is_known
    # A duplicate: closing it is not a hang-up for QEMU, which would make its main loop work in the middle of a run.
    await client.connect(monitor.dup())
    try:
        if not is_known:
            await client.execute("migrate-set-capabilities", _IGNORE_SHARED)
        yield client
    finally:
        await client.disconnect()
