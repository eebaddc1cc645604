"""The error tree: every error the rig raises on purpose is a `RigError` and says what happened and what to do."""


class RigError(Exception):
    """Base class; its message is written for the user and needs no traceback."""


class UsageError(RigError):
    """What the user asked for does not exist or does not fit; the message names the choices."""


class NoSuchStepError(UsageError):
    """No step of a user's program has the name that all cuts are to hit; the message names the steps."""


class HostError(RigError):
    """The host lacks something: a program, space, a permission; the message names the fix."""


class VmError(RigError):
    """A virtual machine did not start, did not answer in time or was lost."""


class DisagreementError(VmError):
    """Two kinds of machines found different things in one crash state, so neither finding counts."""


class EngineError(RigError):
    """An engine failed although nothing was wrong with the disk, so there is nothing to measure."""


class RecordingError(RigError):
    """A recording is damaged or void: no verdict can rest on it."""


class LegalityError(RigError):
    """No honest disk can leave a planned crash state: the rig is wrong, and results that rest on the state are void."""


class StoreError(RigError):
    """A run directory holds something that cannot be read or written; the message names file and place."""
