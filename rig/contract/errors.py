"""The error tree: every error the rig raises on purpose is a `RigError` and says what happened and what to do."""


class RigError(Exception):
    """Base class; its message is written for the user and needs no traceback."""


class UsageError(RigError):
    """What the user asked for does not exist or does not fit; the message names the choices."""


class HostError(RigError):
    """The host lacks something: a program, space, a permission; the message names the fix."""


class VmError(RigError):
    """A virtual machine did not start, did not answer in time or was lost."""


class RecordingError(RigError):
    """A recording is damaged or void: it cannot carry a verdict."""


class LegalityError(RigError):
    """A crash state is none that an honest disk can leave: the rig is wrong, and what rests on the state is void."""


class StoreError(RigError):
    """A run directory holds something that cannot be read or written; the message names file and place."""
