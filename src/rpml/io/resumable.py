"""Runs that write one output and keep their finished stages next to it until then."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rpml.io.checkpoint import remove_checkpoint
from rpml.runtime.files import locked

Inputs = Iterable[str | Path | None]


@dataclass(frozen=True)
class ResumableRun(ABC):
    """A run whose output is `path`; a killed one continues with `resume`.

    `overwrite` replaces an existing output; without `resume` it also discards finished stages.
    """

    path: str | Path
    resume: bool = False
    overwrite: bool = False
    _suffix: ClassVar[str]
    """Of the folder of finished stages."""

    @property
    def directory(self) -> Path:
        """The folder of finished stages, next to the output."""
        target = Path(self.path)
        return target.with_name(target.name + self._suffix)

    def check(self, inputs: Inputs = ()) -> None:
        """Raise InputError, before any work, if an output exists, is an input or is foreign.

        Parameters
        ----------
        inputs : iterable of str, Path or None, default=()
            The files and folders that are read.
        """
        self._check(list(inputs))

    @abstractmethod
    def _check(self, inputs: list[str | Path | None]) -> None: ...

    def discard(self) -> None:
        """Delete the finished stages."""
        remove_checkpoint(self.directory)

    @contextmanager
    def _running(self, inputs: Inputs = ()) -> Iterator[None]:
        """Hold the lock of the output, checked again; start over if that is asked for."""
        with locked(self.path):
            self.check(inputs)
            if self.overwrite and not self.resume:
                self.discard()
            yield
