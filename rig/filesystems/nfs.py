"""NFS 4.2 over the loopback network: one machine is server and client, and the server's disk is recorded and cut.

The server is the kernel's. By default it answers a change of names, and a COMMIT, when they are on its disk. With the
export option `async` it answers before (exports(5)): then a client's fsync means nothing, and a crash of the server may
lose whatever it had acknowledged.

A recording is of a crash that ends server and client. Neither remembers anything, and no program survives that could
send again what the server did not yet have on its disk (RFC 8881, section 18.3). So a crash state is what the server's
own file system holds: a new client would see the same files, and the engine is opened on them without NFS.

The kernel asks user space who may mount what, through caches in /proc/net/rpc (nfs-utils, support/export/cache.c);
`serve` fills them in before it is asked, so no other program is needed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rig.contract.faultspecs import CRASH_FAULTS
from rig.filesystems import ext, kernel

_SERVER = Path("/proc/fs/nfsd")
_CACHES = Path("/proc/net/rpc")
# The server's own memory of its clients; a real server has it on its system disk.
_RECOVERY = Path("/run/nfs-recovery")
_ADDRESS, _PORT = "127.0.0.1", 2049
_THREAD_COUNT = 8
# Neither the oldest versions, which need more programs, nor 4.0.
_VERSIONS = "-3 +4 -4.0 +4.1 +4.2"
_CLIENT = f"proto=tcp,addr={_ADDRESS},clientaddr={_ADDRESS}"
# include/uapi/linux/nfsd/export.h. The export is the root of what the server shows (fsid=0), and root stays root.
_WDELAY, _NO_SUBTREE_CHECK, _FSID, _ASYNC = 0x20, 0x400, 0x2000, 0x10
_NOBODY = 65534
# The connections of this machine, proc(5), and the state of one that waits for clients.
_CONNECTIONS, _LISTENS = Path("/proc/net/tcp"), "0A"
# How often the kernel sends again what a program left in a connection when it closed that.
_ORPHAN_RETRIES = Path("/proc/sys/net/ipv4/tcp_orphan_retries")
_GONE_LIMIT_S, _LOOK_S = 900, 0.1
# Seconds since 1970: later than any clock of the rig.
_NEVER = 1 << 40
# ioctl(2) and flag that bring up a network interface, see netdevice(7).
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_UNSAFE = dict.fromkeys(CRASH_FAULTS, "its server acknowledges what is only in its memory (export option async)")


@dataclass(frozen=True)
class Nfs(ext.LoggedExt):
    """The server's file system, with how it is exported and mounted over NFS."""

    # FIEMAP does not work through NFS.
    maps_files: bool = False
    is_async: bool = False
    # nfs(5), close-to-open cache consistency; before it releases a lock, the client sends what it has as well. If the
    # server answers before it writes, none of this is durable.
    syncs_on_close: bool = True
    serving_modules: tuple[str, ...] = (
        "sunrpc", "auth_rpcgss", "grace", "lockd", "nfs_acl", "nfsd", "netfs", "dns_resolver", "nfs", "nfsv4",
    )  # fmt: skip

    def mounted_with(self, device: str) -> str:
        """Return the options of the server's mount, of the export and of the client's mount."""
        parts = [super().mounted_with(device)]
        parts += exported_with((_CACHES / "nfsd.export/content").read_text())
        with suppress(LookupError):  # no client has mounted it: a crash state
            parts.append(kernel.mount_options(f"{_ADDRESS}:/"))
        return ",".join(parts)

    def serve(self, exported: str, directory: str) -> None:
        """Start the server with one export, and mount it."""
        if not _SERVER.joinpath("threads").exists():
            kernel.mount("nfsd", "nfsd", "", str(_SERVER))
        _set_network(is_up=True)
        _RECOVERY.mkdir(exist_ok=True)
        _tell("versions", _VERSIONS)
        _tell("nfsv4recoverydir", str(_RECOVERY))
        self._start(exported)
        # No client had anything open before.
        _tell("v4_end_grace", "Y")
        kernel.mount(f"{_ADDRESS}:/", "nfs4", f"vers=4.2,{_CLIENT}", directory)

    def _start(self, exported: str) -> None:
        _tell("portlist", f"tcp {_PORT}")
        _tell("threads", str(_THREAD_COUNT))
        flags = _NO_SUBTREE_CHECK | _FSID | (_ASYNC if self.is_async else _WDELAY)
        _answer("auth.unix.ip", f"nfsd {_ADDRESS} {_NEVER} rig")
        _answer("nfsd.export", f"rig {exported} {_NEVER} {flags} {_NOBODY} {_NOBODY} 0")
        # The root, by the number of its file system, which is 0.
        _answer("nfsd.fh", f"rig 1 \\x00000000 {_NEVER} {exported}")

    def join(self, directory: str) -> None:
        """Mount the export a second time, as another host.

        With another version the server takes it for another client, as the version is part of a client's name
        (nfs4_init_uniform_client_string in fs/nfs/nfs4proc.c). With `nosharecache` alone it would be the same client:
        the server would neither recall what it delegated to the first mount, nor see the locks that the first mount
        then keeps to itself.
        """
        kernel.mount(f"{_ADDRESS}:/", "nfs4", f"vers=4.1,nosharecache,{_CLIENT}", directory)

    def stop(self) -> None:
        """Stop the server: with its last thread it forgets its exports and its clients."""
        _tell("threads", "0")

    def isolate(self) -> None:
        """Take the network down. What the server has not sent by then waits in its connections."""
        _ORPHAN_RETRIES.write_text("1")
        _set_network(is_up=False)

    def revive(self, exported: str) -> None:
        """Wait until the connections of the server before are gone, start it, and bring the network up.

        A client finds its connection gone, connects anew, says what it has open and locked, and sends again what the
        old server had not committed, since the new server has another write verifier (RFC 8881, section 18.32).
        """
        until_s = time.monotonic() + _GONE_LIMIT_S
        while connections := served_connections(_CONNECTIONS.read_text()):
            if time.monotonic() > until_s:
                raise TimeoutError(f"{len(connections)} connections of the server are still there: {connections[0]}")
            time.sleep(_LOOK_S)
        self._start(exported)
        _set_network(is_up=True)


def _variant(word: str, option: str, *, unsafe: Mapping[str, str]) -> Nfs:
    made = ext.newest(Nfs, word, "data=ordered", "barrier", "vers=4.2", option, unsafe=unsafe)
    return replace(made, is_async=bool(unsafe), syncs_on_close=not unsafe)


VARIANTS = (_variant("nfs", "sync", unsafe={}), _variant("nfs.async", "async", unsafe=_UNSAFE))


def exported_with(content: str) -> list[str]:
    """Return the options of the only export, from the text of its cache; none if nothing is exported."""
    lines = [line for line in content.splitlines() if not line.startswith("#")]
    return [option for line in lines for option in line[line.index("(") + 1 : line.rindex(")")].split(",")]


def _tell(name: str, words: str) -> None:
    _write(_SERVER / name, words)


def _answer(cache: str, words: str) -> None:
    _write(_CACHES / cache / "channel", words)


def _write(path: Path, words: str) -> None:
    """Write a line at once: the kernel takes what comes in one call as one answer."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, f"{words}\n".encode())
    finally:
        os.close(file)


def served_connections(table: str) -> list[str]:
    """Return the lines of /proc/net/tcp that are connections of the server, whatever has become of them."""
    lines = [line.split() for line in table.splitlines()[1:]]
    # Local and remote address and port, and the state, in hexadecimal.
    return [" ".join(line[1:4]) for line in lines if int(line[1].split(":")[1], 16) == _PORT and line[3] != _LISTENS]


def _set_network(*, is_up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP if is_up else 0))
