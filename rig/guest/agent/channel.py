"""What both roles do with the host: read the orders of the warm-up, and write messages to the machine's port."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rig.contract.messages import decode
from rig.contract.orders import Orders

# Part of the code archive, see `rig.images.guestcode`; a machine that is never cloned has no such file.
_WARM_ORDERS = Path("/run/code/warm.json")


def warm_orders() -> list[Orders]:
    """Return the orders to carry out once before the save: a clone must find all code loaded."""
    messages = json.loads(_WARM_ORDERS.read_text()) if _WARM_ORDERS.exists() else []
    return [decode(Orders, message) for message in messages]


def port_node() -> str:
    """Return the node of the virtio port to the host."""
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == "rig":
            return f"/dev/{port.name}"
    raise FileNotFoundError("no virtio port named rig")


def send(port: int, message: dict[str, Any]) -> None:
    """Write a message to the host, as one line of JSON."""
    write(port, json.dumps(message).encode() + b"\n")


def write(port: int, data: bytes) -> None:
    """Write all of these bytes to the host."""
    view = memoryview(data)
    while view:
        view = view[os.write(port, view) :]
