"""Operations of training, counted by torch, and what they mean in hours on a GPU.

    python benchmarks/deep_flops.py --backbone googlenet.onnx

Writes its table to docs/deep.md.
"""

from __future__ import annotations

import argparse

import torch
from deep_baselines import ALL as METHODS
from deep_page import DOCS, replace_table
from torch.utils.flop_counter import FlopCounterMode

from rpml.deep.backbones import ALL, Network, open_network
from rpml.deep.trainer import Schedule, paper_schedule

IMAGES = 5864  # the training images of CUB-200-2011
SIZE = 224
RATE = 4  # TFLOP/s sustained in single precision: half of a T4's peak
BEGIN = "<!-- table: python benchmarks/deep_flops.py -->"


def operations(network: Network, train: bool) -> float:
    """GFLOP of one image forward, and backward if it is trained on."""
    maps = torch.zeros(1, 3, SIZE, SIZE)
    for parameter in network.upper.parameters():
        parameter.requires_grad_(train)
    with FlopCounterMode(display=False) as counter:
        out = network.upper(network.trunk(maps))
        if train:
            out.sum().backward()
    return counter.get_total_flops() / 1e9


def table(forward: float, both: float) -> str:
    lines = [f"| method | epochs | rows per batch | PFLOP | hours at {RATE} TFLOP/s |"]
    lines.append("|---|---:|---:|---:|---:|")
    total = 0.0
    for method in METHODS.values():
        schedule = paper_schedule(method.budget, Schedule())
        per_row = both + (forward if method.needs_teacher else 0.0)
        count = schedule.epochs * IMAGES * per_row / 1e6
        total += count
        lines.append(_line(method.title, schedule.epochs, schedule.batch_size, count))
    counted = f"Per row torch counts {forward:.2f} GFLOP forward and {both:.2f} with backward."
    return "\n".join([*lines, _line("all of them", "", "", total), "", counted])


def _line(title: str, epochs: int | str, batch: int | str, count: float) -> str:
    return f"| {title} | {epochs} | {batch} | {count:.1f} | {count * 1e3 / RATE / 3600:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", required=True, help="GoogLeNet as ONNX")
    network = open_network(parser.parse_args().backbone, ALL)
    forward, both = operations(network, False), operations(network, True)
    replace_table(DOCS / "deep.md", table(forward, both), BEGIN)


if __name__ == "__main__":
    main()
