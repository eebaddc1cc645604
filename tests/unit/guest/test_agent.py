"""The agent takes its orders as a whole, wherever the machine was when it was saved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rig.guest.agent.recording import wait_for_orders

_ORDERS, _SIZE = b'{"engine": "sqlite", "seed": 1}', 64


@given(reads=st.integers(0, 3), done=st.integers(0, _SIZE), known=st.sampled_from([b"", b'{"added_bytes": 4096}']))
def test_a_read_that_was_saved_in_the_middle_does_not_cost_the_beginning_of_the_orders(
    reads: int, done: int, known: bytes
) -> None:
    before, whole = known.ljust(_SIZE, b"\0"), _ORDERS.ljust(_SIZE, b"\0")
    contents = iter([*[before] * reads, before[:done] + whole[done:], whole, whole])
    assert _ORDERS == wait_for_orders(lambda: next(contents), known)
