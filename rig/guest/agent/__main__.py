"""Start as process 1: play one of two roles, and report whatever ends it.

Each role loads only what it needs, because a machine waits for that while it boots.
"""

from __future__ import annotations

import os
import signal
import traceback
import tty

from rig.contract.orders import FAILED
from rig.guest.agent import channel
from rig.guest.watch.forks import EngineFailed


def main() -> None:
    """Play the role that the kernel command line names."""
    port = os.open(os.environ.get("RIG_PORT") or channel.port_node(), os.O_RDWR | os.O_NOCTTY)
    if os.isatty(port):
        tty.setraw(port)
    try:
        if os.environ["RIG_ROLE"] == "recorder":
            from rig.guest.agent import recording

            recording.serve(port)
        else:
            from rig.guest.agent import verifying

            verifying.serve(port)
    except EngineFailed as error:
        print(error, FAILED, flush=True)
        channel.send(port, {"failed": str(error)})
    except BaseException:  # noqa: BLE001 - process 1 must not end; it reports any error to the host
        print(traceback.format_exc(), FAILED, flush=True)
        channel.send(port, {"error": traceback.format_exc()})
    while True:  # process 1 must not end; the host kills the machine
        signal.pause()


if __name__ == "__main__":
    main()
