"""Options: how commands declare and parse them, and those that several commands share.

An option is the default of a parameter, as typer reads it. Options that several commands share as a
group are the fields of a dataclass, made by `option_group`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, get_type_hints

import typer
from typer.models import OptionInfo

from rpml.runtime.errors import InputError, require

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rpml.deep.finetune import Training
    from rpml.runtime.context import Json
    from rpml.vision.extract import Job, Recipe

T = TypeVar("T")


def argument(metavar: str, help: str, default: Any = ...) -> Any:
    return typer.Argument(default, metavar=metavar, help=help)


def text(metavar: str, help: str, *names: str, default: Any = None) -> Any:
    """Declare an option with a value; the default ... makes it required."""
    return typer.Option(default, *names, metavar=metavar, help=help)


def number(help: str, *names: str, minimum: int = 1, default: Any = None) -> Any:
    """Declare an option with an integer of at least `minimum`."""
    return typer.Option(default, *names, metavar="N", min=minimum, help=help)


def share(help: str) -> Any:
    """Declare an option with a number from 0 to 1."""
    return typer.Option(None, metavar="SHARE", min=0, max=1, help=help)


def flag(help: str, *names: str, default: bool | None = False) -> Any:
    """Declare an option without a value; it has a negation if it is on by default."""
    return typer.Option(default, *names, help=help)


def output(metavar: str, help: str, default: Any = ...) -> Any:
    return text(metavar, help, "--output", "-o", default=default)


@dataclass_transform(frozen_default=True)
def option_group(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose fields are declared like a command's options."""
    declared = {name: o for name, o in vars(cls).items() if isinstance(o, OptionInfo)}
    for name, option in declared.items():
        setattr(cls, name, option.default)
    cls.declared = {**getattr(cls, "declared", {}), **declared}  # type: ignore[attr-defined]
    return dataclass(frozen=True)(cls)


def expand_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one parameter per field of each dataclass in its signature.

    Typer reads the options of a command from its signature and knows no groups. A parameter
    annotated with a dataclass is therefore replaced by the fields of that dataclass, and the
    function is called with the dataclass made of their values.
    """
    hints = get_type_hints(function)
    groups: dict[str, type[DataclassInstance]] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        group, kind = groups.get(name), Parameter.KEYWORD_ONLY
        if group is None:
            parameters.append(parameter.replace(kind=kind, annotation=hints[name]))
            continue
        types, declared = get_type_hints(group), vars(group)["declared"]
        parameters += [
            Parameter(n, kind, default=o, annotation=types[n]) for n, o in declared.items()
        ]
    for parameter in parameters:  # typer would add a negation to a flag that has no name
        option = parameter.default
        if getattr(option, "default", None) is False and not option.param_decls:
            option.param_decls = (f"--{parameter.name.replace('_', '-')}",)

    @wraps(function)
    def run(**arguments: object) -> None:
        packed = {
            name: group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        function(**arguments, **packed)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


OPTION_OF = {
    "n_components": "--dim",
    "n_neighbors": "--neighbors",
    "n_clusters": "--clusters",
    "min_cluster_size": "--min-cluster-size",
    "random_state": "--seed",
    "max_iter": "--max-iter",
    "memory_limit": "--memory-limit",
}
"""Options of settings whose names do not occur in prose."""
_SAME_NAME = (
    *("weight", "solver", "subsample", "metric", "rescore"),
    *("patience", "epochs", "learning_rate", "seed"),
)
KINDS = ".npy, .npz, .parquet, .feather, .jsonl, .csv, .tsv, a folder of these, or - (stdin)"

FEATURES = argument("FEATURES", f"Vectors: {KINDS}.")
MODEL = argument("MODEL", "Model written by rpml fit.")
MODELS = argument("MODEL", "Model written by rpml fit, or two to compare.")
NUISANCE = text("FILE", "What does not matter, one value per row: a file, or columns of FEATURES.")
QUERIES = text("FILE", "Vectors of unlabeled queries; FEATURES are the documents.")
LABELS = text("FILE", "One label per row: .npy, .npz, .txt, or a column of a table.")
DIM = number("Use only the first components of the model.")
SETTINGS = text("NAME=VALUE", "Any other setting; may be repeated.", "--set")
FORCE = flag("Replace the output if it exists.")
RESUME = flag("Continue an interrupted run of the same output.")
SEED = number("Random seed.", minimum=0, default=0)
PARALLEL = number("Images processed in parallel; default: all cores.")


def parse_names(text: str | None) -> list[str] | None:
    return [name for part in (text or "").split(",") if (name := part.strip())] or None


def check_choice(option: str, name: str | None, choices: Iterable[str]) -> None:
    if name is not None and name not in choices:
        raise InputError(f"{option} {name}: choose from {', '.join(choices)}")


def parse_numbers(option: str, text: str) -> list[int]:
    if not re.fullmatch(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*", text):
        raise InputError(f"{option} must be positive integers such as 8 or 8,16,32, got {text!r}")
    return list(dict.fromkeys(int(number) for number in text.split(",")))


def parse_settings(
    pairs: list[str] | None, names: Iterable[str], given: Iterable[str] = ()
) -> Json:
    """Parse the NAME=VALUE pairs of --set, with values typed as in TOML (text needs no quotes).

    `given` are the settings that an option of their own has set already.
    """
    settings: Json = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, got {pair!r}")
        if name not in names:
            others = ", ".join(sorted(set(names) - set(OPTION_OF)))
            hint = did_you_mean(name, names) or f": the settings are {others}"
            raise InputError(f"--set {pair}: there is no setting {name!r}{hint}")
        if name in settings:
            raise InputError(f"--set {pair}: {name} is set twice, leave one out")
        if name in given:
            raise InputError(f"--set {pair}: {option_of(name)} sets the same, leave one out")
        settings[name] = _value(text.strip())
    return settings


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message that suggests a similar name, if there is one."""
    close = get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def option_of(setting: str) -> str:
    named = f"--{setting.replace('_', '-')}" if setting in _SAME_NAME else f"--set {setting}"
    return OPTION_OF.get(setting, named)


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


IMAGES = argument("IMAGES", "A folder, a .txt list of paths, or one image.")


@option_group
class DescriptorOptions:
    """How an ONNX network describes an image."""

    scales: str = text("PIXELS,...", "Longer side; scales are summed.", default="512,362,256")
    pool: str = text("NAME", "rmac, mac, average or gem.", default="rmac")

    def recipe(self, **more: Any) -> Recipe:
        """Return the recipe of a descriptor; `more` are other fields of `Recipe`."""
        from rpml.vision.extract import Recipe

        return Recipe(tuple(parse_numbers("--scales", self.scales)), self.pool, **more)

    def job(self, path: str, workers: int | None) -> Job:
        from rpml.vision.backbone import Backbone
        from rpml.vision.extract import Job, call_threads

        return Job((), Backbone(path, call_threads(workers)), self.recipe(), workers)


@option_group
class TrainingOptions:
    """How the upper blocks of a network are trained."""

    train_from: str | None = text("BLOCK", "First block to train, or all; default: the last two.")
    size: int = number("Height and width of the images.", minimum=32, default=224)
    views: int = number("Augmented views per image.", minimum=0, default=8)
    epochs: int | None = number("Passes over the images; default: 6.")
    learning_rate: float | None = text("RATE", "Of the upper blocks; default: the method's.")
    bf16: bool = flag("Run convolutions in bfloat16.")
    schedule: str = text(
        "NAME", "common, or paper: as long as each paper trains (for a GPU).", default="common"
    )

    def training(self, dim: int, pool: str, settings: Json) -> Training:
        """Return the settings of a run; `settings` are other fields of the schedule."""
        from rpml.deep.finetune import Training
        from rpml.deep.inputs import ImageSpec
        from rpml.deep.trainer import Schedule, check_free
        from rpml.vision.images import Views

        changed = {"epochs": self.epochs, "learning_rate": self.learning_rate, **settings}
        changed = {name: value for name, value in changed.items() if value is not None}
        check_free(self.schedule, changed)
        image_spec = ImageSpec(self.size, Views(self.views))
        return Training(dim, pool, self.bf16, image_spec, Schedule(**changed), self.schedule)


def require_torch() -> None:
    require("torch", "deep", "training a network")
    require("pytorch_metric_learning", "deep", "training a network")
