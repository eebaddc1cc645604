"""An engine with native code that does on a damaged or failing file what engines do: see `native.c`.

`tests.unit.guest.frailty` builds it and installs it away from this tree.
"""
