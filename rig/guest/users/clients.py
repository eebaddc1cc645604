"""A user's program with several clients: their transactions overlap, in bursts with a pause before each.

At the beginning of a burst every client gets to issue its next transaction. A client whose transaction is acknowledged
goes on at once, or waits for the next burst; a coin decides. So transactions begin while others are being synced. Marks
overlap, as in `begin-1 begin-2 ack-2 begin-4 ack-1`. A transaction may be on the disk before the program has said that
it begins, so the mark is written when its client gets to issue it. The mark `clients-C` says how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from rig.engines.own import ClientsDriver, ClientsSession, NoResult, OwnDriver, Task
from rig.guest.programs import own
from rig.guest.site import Site
from rig.guest.watch.forks import kill_children

_GOES_ON = 0.5


def run(site: Site, driver: OwnDriver, mark: Callable[[str], None], think: Callable[[float], None]) -> dict[str, str]:
    """Carry out all transactions in an empty, durable directory; return the settings that were read back.

    Raise EngineFailed if the engine does anything that its driver does not expect.
    """
    assert isinstance(driver, ClientsDriver)
    task = own.task_of(site)
    # As many transactions in a time as with one client.
    burst_ms = site.think_ms * task.client_count / (1 - _GOES_ON)
    try:
        session = driver.clients(own.starter_of(site), task)
        carry_out(session, task, mark, lambda share: think(share * burst_ms))
        think(site.rest_ms)
        mark("end")
        session.close()
        return own.settings(site, driver)
    except NoResult as failure:
        raise own.blame(site.orders.engine, failure) from None
    finally:
        kill_children()


def carry_out(session: ClientsSession, task: Task, mark: Callable[[str], None], pause: Callable[[float], None]) -> None:
    """Carry out all transactions; `pause` gets the length of each pause, as a share of the mean."""
    chance = Random(f"think {task.seed}")
    mark(f"clients-{task.client_count}")
    waiting = list(range(1, task.client_count + 1))
    while waiting:
        pause(chance.uniform(0, 2))
        waiting = list(_burst(session, task, waiting, mark, chance))


def _burst(
    session: ClientsSession, task: Task, numbers: Sequence[int], mark: Callable[[str], None], chance: Random
) -> Iterator[int]:
    """Carry out transactions and some that follow them; yield those with which the clients begin the next burst."""
    in_flight = set[int]()

    def release(numbers: Sequence[int]) -> None:
        for number in numbers:
            mark(f"begin-{number}")
        session.release(numbers)
        in_flight.update(numbers)

    release(numbers)
    while in_flight:
        number, reply = session.answer()
        own.require_success(number, reply)
        mark(reply.mark(number))
        in_flight.remove(number)
        following = number + task.client_count
        if following > task.transaction_count:
            continue
        if chance.random() < _GOES_ON:
            release([following])
        else:
            yield following
