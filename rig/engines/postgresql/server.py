"""A server on a cluster: the arguments with which it is started, and what its log says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rig.engines.postgresql import place
from rig.engines.server import Server

_READY = b"database system is ready to accept connections"
# Levels of log lines that say why a server did not start or has ended.
_GRAVE = re.compile(r"^(?:FATAL|PANIC):.*")


def started(folder: str, parameters: Mapping[str, str]) -> Server:
    """Return a server on a cluster, once it answers; raise ServerDown with its own words if it does not start."""
    given = {**parameters, "unix_socket_directories": place.sockets(folder)}
    command = [place.program("postgres"), "-D", folder]
    command += [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
    return Server(command, place.home(), _READY, _GRAVE, place.identity())
