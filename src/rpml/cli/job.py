"""One fit from the shell: interruptible, resumable, and never losing a file."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpml.cli.command import SHOWN, Interrupted
from rpml.cli.console import Console, Reporter
from rpml.cli.links import WIDTHS
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpml.estimator import RPML
    from rpml.io.checkpoint import Checkpoint
    from rpml.io.features import Features


class Stopper:
    """Ctrl-C: while the solver runs ask it to stop and keep its best; elsewhere stop at once."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.asked = reporter, False

    def __call__(self, progress: Any) -> bool:
        self.reporter(progress)
        return self.asked

    @contextmanager
    def listening(self) -> Iterator[Stopper]:
        """Answer SIGINT until the block ends."""
        previous = signal.signal(signal.SIGINT, self._answer)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, previous)

    def _answer(self, number: int, frame: Any) -> None:
        if self.asked or self.reporter.stage != "optimize":
            raise KeyboardInterrupt
        self.asked = True


class Job:
    """One fit: its data, its model file, its checkpoint."""

    def __init__(
        self,
        target: Path,
        data: Features,
        model: RPML,
        console: Console,
        options: dict[str, Any],
        side: dict[str, Any],
        digest: str | None = None,
    ) -> None:
        import numpy as np

        from rpml.io.checkpoint import data_digest, fingerprint
        from rpml.model import describe_settings

        self.target, self.data, self.model, self.console = target, data, model, console
        self.options, self.side = options, side
        self.settings = describe_settings(model)
        clustering = model.clustering if hasattr(model.clustering, "dtype") else None
        given = [side[name] for name in WIDTHS if name in side]
        if side.get("conflicts") == "weight":
            given.append(np.ones(1))  # may leave some of them out
        sides = (clustering, side.get("groups"), side.get("y"), *given)
        if digest is None:
            self.digest = data_digest(data.values, *sides)
        else:  # the rows are elsewhere, and were hashed there
            self.digest = digest + data_digest(*sides)
        self.fingerprint = fingerprint(self.digest, self.settings)
        self.store: Checkpoint | None = None

    @property
    def directory(self) -> Path:
        """Where the checkpoint is: beside the model."""
        return self.target.with_name(self.target.name + ".ckpt")

    def _existing_run(self) -> dict[str, Any] | None:
        """What the model that is there says of its making; None if there is none of ours."""
        from rpml.io.model_file import read_model
        from rpml.runtime.errors import ModelFormatError

        try:
            run = read_model(self.target)[1].get("run", {})
        except ModelFormatError:
            return None
        return run if isinstance(run, dict) and run.get("fingerprint") == self.fingerprint else None

    def already_done(self) -> bool:
        """Whether the model is there, from the same data and settings (killed after the write)."""
        from rpml.estimator import RPML

        run = self._existing_run()
        if run is None or run.get("interrupted"):
            return False
        self.model = RPML.load(self.target)
        self._remove_checkpoint()
        return True

    def check_resumable(self) -> None:
        """--resume replaces an unfinished model of this fit, and nothing else."""
        if os.path.lexists(self.target) and self._existing_run() is None:
            raise InputError(
                f"{self.target} exists and is not from this fit: choose another name or pass "
                "--force to replace it"
            )

    def open_checkpoint(self, resume: bool, force: bool, wanted: bool) -> None:
        """Find the finished stages, or start without any."""
        from rpml.io.checkpoint import Checkpoint

        if force and not resume:
            self._remove_checkpoint()
        if not wanted:
            return
        self.store = Checkpoint(self.directory, self.digest, self.settings, resume)
        if resume and not self.directory.exists():
            self.console.note(f"nothing to resume in {self.directory}: starting from the beginning")

    def _remove_checkpoint(self) -> None:
        from rpml.io.checkpoint import remove_checkpoint

        remove_checkpoint(self.directory)

    def fit(self) -> None:
        """Fit, write the model, clean up; on Ctrl-C keep the best so far and say how to go on."""
        try:
            stopped = self._train()
            self._save(stopped)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted before there was a model; {self._how()}") from None
        except ValueError:
            self._remove_checkpoint()  # bad input is not something to continue
            raise
        if stopped:
            raise Interrupted(
                f"interrupted: {self.target} holds the best model so far "
                f"({self.model.n_iter_} iterations); {self._how()}"
            )
        self._remove_checkpoint()

    def _train(self) -> bool:
        """True if the solver was asked to stop."""
        with self.console.reporter() as reporter, Stopper(reporter).listening() as stopper:
            self.model.set_params(callback=stopper)
            self.model.fit(self.data.values, **self.side, store=self.store)
        from rpml.io.features.source import as_ids

        names = self.data.feature_names
        if names is not None:
            self.model.feature_names_in_ = as_ids(names)
        return stopper.asked

    def _save(self, interrupted: bool) -> None:
        from rpml.model import save_model

        run = {
            "command": "fit",
            "options": {
                **{k: v for k, v in self.options.items() if v is not None},
                **self.settings,
            },
            "fingerprint": self.fingerprint,
            "interrupted": interrupted,
        }
        save_model(self.model, self.target, run)

    def _how(self) -> str:
        again = [a for a in sys.argv[1:] if a != "--resume"]
        if self.store is None or not self.directory.exists():
            return "run the command again to start over"
        return f"continue with: rpml {shlex.join([*again, '--resume'])}"

    def _mean_loss(self) -> float | None:
        """Loss a triplet at the end; the stochastic solver already reports means."""
        losses = self.model.history_.get("loss")
        if not losses:
            return None
        count = 1 if self.model.solver == "stochastic" else max(1, len(self.model.triplets_))
        return float(losses[-1]) / count

    def summary(self) -> dict[str, Any]:
        """What the fit gave, for people and machines."""
        model = self.model
        weights = model.triplet_weights_
        return {
            "model": str(self.target),
            "rows": len(model.labels_),
            "features": model.n_features_in_,
            "dim": len(model.components_),
            "clusters": len(set(model.labels_[model.labels_ >= 0].tolist())),
            "triplets": len(model.triplets_),
            "iterations": model.n_iter_,
            "converged": model.converged_,
            "message": model.message_,
            "loss": self._mean_loss(),
            "mean_weight": float(weights.mean()) if len(weights) else None,
            "warnings": list(SHOWN),
        }
