"""The state of a training run between epochs, and its form on disk."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.embedder import Embedder
from rpml.deep.methods.base import Loss
from rpml.deep.samplers import Indices
from rpml.runtime.context import Arrays, Json
from rpml.runtime.schema import ANY_FLOAT, COUNT, ArraySpec, Schema

Scores = dict[str, float]


@dataclass
class State:
    """Everything the next epoch depends on."""

    student: Embedder
    teacher: Embedder
    """Exponential moving average of the student's weights."""
    loss: Loss
    optimizer: torch.optim.Optimizer
    features: NDArray[np.float32]
    """(n_images, n_features) running mean of the features of each image."""
    label_features: NDArray[np.float32]
    """`features` when the pseudo-labels were last computed."""
    labels: Indices | None = None
    """(n_images,) pseudo-labels of the epoch."""
    epoch: int = 0
    """Finished epochs."""
    history: list[Scores] = field(default_factory=list)
    """Scores of each finished epoch."""


def snapshot(state: State) -> tuple[Arrays, Json]:
    """Return arrays and JSON values from which `restore` continues exactly."""
    arrays: Arrays = {"features": state.features, "label_features": state.label_features}
    if state.labels is not None:
        arrays["labels"] = np.asarray(state.labels, np.int64)
    for name in ("student", "teacher", "loss"):
        for key, tensor in getattr(state, name).state_dict().items():
            arrays[f"{name}/{key}"] = tensor.detach().cpu().contiguous().numpy()
    for index, slots in state.optimizer.state_dict()["state"].items():
        for key, tensor in slots.items():
            arrays[f"optimizer/{index}/{key}"] = tensor.detach().cpu().contiguous().numpy()
    return arrays, {"epoch": state.epoch, "history": state.history}


def state_schema(state: State) -> Schema:
    """Return the schema of `snapshot` for this state after any number of epochs."""
    n = len(state.features)
    arrays = {
        "features": ArraySpec("f", state.features.shape),
        "label_features": ArraySpec("f", state.label_features.shape),
        "labels": ArraySpec("i", (n,), -1, n, optional=True),
    }
    for name in ("student", "teacher", "loss"):
        for key, tensor in getattr(state, name).state_dict().items():
            arrays[f"{name}/{key}"] = ArraySpec("fib", tuple(tensor.shape))
    parameters = [p for group in state.optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        for slot in ("exp_avg", "exp_avg_sq", "step"):
            shape = () if slot == "step" else tuple(parameter.shape)
            arrays[f"optimizer/{index}/{slot}"] = ArraySpec("f", shape, optional=True)
    return Schema(arrays, {"epoch": COUNT, "history": [{"*": ANY_FLOAT}]})


def restore(state: State, arrays: Arrays, metadata: Json) -> None:
    """Set a newly initialized state to a saved one."""
    state.features[:], state.label_features[:] = arrays["features"], arrays["label_features"]
    state.labels = arrays.get("labels")
    for name in ("student", "teacher", "loss"):
        module = getattr(state, name)
        module.load_state_dict(_tensors(arrays, f"{name}/"))
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in _tensors(arrays, "optimizer/").items():
        index, key = name.split("/")
        slots.setdefault(int(index), {})[key] = tensor
    state.optimizer.load_state_dict({**state.optimizer.state_dict(), "state": slots})
    state.epoch, state.history = metadata["epoch"], list(metadata["history"])


def _tensors(arrays: Arrays, prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
