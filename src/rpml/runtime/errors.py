"""What can go wrong, as few exception classes as possible; each message is one sentence."""


class InputError(ValueError):
    """Something the user gave cannot be used: a file, a column, an option (exit code 2)."""


class ModelFormatError(InputError):
    """A model file is damaged, forged, or from a newer version of the package."""


class CheckpointError(InputError):
    """A checkpoint cannot be continued: other data, other settings, or in the way."""


class WriteError(OSError):
    """An output could not be written (full disk, quota); what was there before is untouched."""


class TrainingError(ArithmeticError):
    """Training a network failed: the loss is not finite, or there is nothing to learn from."""


class WeightCollapseWarning(UserWarning):
    """The learned triplet weights have shrunk to zero, so the embedding was hardly trained."""
