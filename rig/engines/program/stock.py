"""Look at a program's files with the program itself: its `recover` says which transactions it has.

Of those that were not acknowledged, only a torn one counts, and only if the program promises that none is torn.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection

from rig.engines.own import OWN_FOLDER, Task
from rig.engines.program.promises import Promised, promises_of

_SCRIPT = """\
program=${{PROGRAM:-$folder/program/{name}}}
start() {{
    env {environment} "$program" "$@" {arguments}
}}
control() {{
    mkdir -p "$work/control/{folder}" && (cd "$work/control/{folder}" && echo {ok} | start run {run} > "$work/acks")
}}
rows() {{
    mkdir -p {folder} && cd {folder} || return
    start recover > "$work/answer" 2> "$work/words" || {{
        echo "recover ended with exit code $?"
        tail -n 5 "$work/words"
    }} >&2
    awk -v atomic={atomic} 'FILENAME != "-" {{ asked[$2]; next }}
        $1 == "have" && !($2 in asked) {{ next }}
        $1 == "torn" && !($2 in asked) && !atomic {{ next }}
        {{ print }}' "$1" - < "$work/answer" | sort -n -k 2
}}
"""


def own_script(task: Task) -> str:
    """Return lines of shell that define `control` and `rows`."""
    environment, arguments = (json.loads(task.settings.get(key, "[]")) for key in ("environment", "arguments"))
    facts = [f"RIG_SEED={task.seed}", f"RIG_TRANSACTIONS={task.transaction_count}"]
    clients = [] if task.client_count == 1 else ["--clients", str(task.client_count)]
    facts += [f"RIG_CLIENTS={task.client_count}"] if clients else []
    return _SCRIPT.format(
        folder=OWN_FOLDER,
        name=shlex.quote(task.settings["program"]),
        environment=shlex.join([*facts, *environment]),
        arguments=shlex.join(arguments),
        run=shlex.join(["--seed", str(task.seed), "--transactions", "1", *clients]),
        ok="ok 1" if clients else "ok",
        atomic=int(Promised.ATOMIC in promises_of(task.settings["promise"])),
    )


def numbers_text(numbers: Collection[int]) -> str:
    """Return what `rows` prints if these transactions are there."""
    return "".join(f"have {number}\n" for number in sorted(numbers))
