"""Images a second: the engine against a plain loop, one image at a time, over the same network.

    python benchmarks/vision.py --images DIR --backbone googlenet.onnx

The plain loop decodes, resizes, runs and pools one image after the other over the session that
onnxruntime opens by itself, which uses every core. The engine runs one image per core and opens
the network with its slow operators replaced; the plain loop over that network shows how much is due
to that. Runs alternate; ratios are of medians.
All give the same descriptors up to rounding.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnxruntime
from common import alternate, publish

from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import thread_count
from rpml.vision.backbone import Backbone
from rpml.vision.extract import Job, Recipe, extract
from rpml.vision.images import find_images
from rpml.vision.pooling import pool_maps


def plain_loop(files, backbone, recipe):
    """What one would write first."""
    prepare = Job([], backbone, recipe).tiles
    rows = []
    for file in files:
        tiles = [pool_maps(backbone(tile[None]), recipe.pooling)[0] for tile in prepare(file)]
        rows.append(unit_rows(np.sum(tiles, axis=0, keepdims=True))[0])
    return np.array(rows)


def plain_backbone(path):
    """The network as onnxruntime opens it, every setting its own."""
    backbone = Backbone(path)
    backbone._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return backbone


def compare(files, path, recipe, repeats):
    cores = thread_count()
    plain, shared, single = plain_backbone(path), Backbone(path, threads=cores), Backbone(path)
    subjects = {
        "plain loop": lambda: plain_loop(files, plain, recipe),
        "plain loop, fast operators": lambda: plain_loop(files, shared, recipe),
    }
    subjects["engine, batch 1"] = lambda: extract(files, single, recipe, cores)
    expected = plain_loop(files, plain, recipe)
    found = extract(files, single, recipe, cores).values
    seconds = alternate(subjects, repeats)
    return {
        "images": len(files),
        "scales": recipe.scales,
        "largest_difference": float(np.abs(expected - found).max()),
        "images_per_second": {name: len(files) / s for name, s in seconds.items()},
        "ratio_to_plain_loop": {n: seconds["plain loop"] / s for n, s in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--count", type=int, default=96, help="images, spread over the folder")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    files = find_images(options.images)
    files = files[:: max(1, len(files) // options.count)][: options.count]
    results = {
        "one_scale": compare(files, options.backbone, Recipe((256,)), options.repeats),
        "three_scales": compare(files[::4], options.backbone, Recipe(), options.repeats),
    }
    publish("vision", results)


if __name__ == "__main__":
    main()
