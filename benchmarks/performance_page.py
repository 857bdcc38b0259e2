"""Write the tables of docs/performance.md from the JSON files in benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
START, STOP = "<!-- figures: benchmarks/performance_page.py -->\n", "<!-- end of figures -->\n"


def results(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf8"))["results"] if path.exists() else None


def objective() -> list[str]:
    found = results("objective")
    times = found["milliseconds"]
    return [
        f"| objective and gradient, 8,000 x 1024 -> 128, 100,000 triplets | "
        f"{times['evaluation']:.0f} CPU ms | {found['evaluation / two products']:.2f} x the two "
        f"matrix products ({times['two products']:.0f} ms), {found['public / two products']:.2f} x "
        f"by `loss_and_gradients` with triplets in random order; "
        f"{found['extra memory MB']:.0f} MB extra |",
        f"| one more line-search trial | {times['trial']:.1f} ms | "
        f"{found['trial / evaluation']:.2f} of an evaluation |",
    ]


def solvers() -> list[str]:
    names = {"small": "1,750 x 784 -> 64, 2,688", "large": "8,000 x 1024 -> 128, 100,000"}
    lines = []
    for size, title in names.items():
        found = results(f"solvers-{size}")
        if found:
            per = found["runs"]["ours"]["products per iteration"]
            lines.append(
                f"| 30 iterations, {title} triplets | {found['median seconds']['ours']:.2f} s | "
                f"pymanopt to the same loss: {found[MATRICES]:.0f} x with the paper's matrices, "
                f"{found[OWN]:.1f} x with our objective; {per:.2f} products per iteration |"
            )
    return lines


MATRICES = "pymanopt with the paper's matrices / ours"
OWN = "pymanopt with our objective / ours"


def search() -> list[str]:
    lines = []
    for size, found in results("knn").items():
        faster, (n, d) = found["times faster"], map(int, size.split(" x "))
        lines.append(
            f"| exact 50 neighbors, {n:,} x {d} | {found['seconds']['rpml']:.1f} s | scikit-learn "
            f"{faster['scikit-learn brute']:.1f} x, faiss Flat {faster['faiss Flat']:.1f} x |"
        )
    large = results("knn-large")
    lines.append(
        f"| approximate, 1,000,000 x 128 | {large['seconds']:.0f} s | recall "
        f"{large['recall']:.3f}, peak {large['peak MB']:.0f} MB |"
    )
    last = results("aas")["sizes"][-1]
    share = last["AAS as a share of the graph"]
    lines.append(
        f"| AAS on the graph, {last['rows']:,} rows | {last['seconds for AAS']:.2f} s | "
        f"{share:.1%} of the graph, {last['nanoseconds an edge']:.0f} ns per edge |"
    )
    return lines


def rest() -> list[str]:
    transform, full = results("transform"), results("evaluation-full")
    lines = [
        f"| transform, {transform['rows']:,} x 128 memory-mapped -> 64 | "
        f"{transform['seconds']['transform']:.0f} s | "
        f"{transform['transform / product']:.2f} x numpy's product |"
    ]
    if "rpml embed, peak MB" in transform:
        lines.append(
            f"| rpml embed of that file | {transform['rpml embed, seconds from file to file']:.0f}"
            f" s | peak {transform['rpml embed, peak MB']:.0f} MB |"
        )
    ratios = results("transform-memory")["CPU seconds / product"]
    lines += [
        f"| transform, {features} features in memory | | {ratio['one thread']:.2f} x the product "
        f"in CPU seconds on one thread, {ratio['all threads']:.2f} x on two |"
        for features, ratio in ratios.items()
    ]
    lines.append(
        f"| Recall@K, {full['rows']:,} x {full['dimensions']}, {full['classes']:,} classes | "
        f"{full['seconds']['recall']:.0f} s | "
        f"{full['recall_ratio_to_products']:.2f} x its products |"
    )
    return lines


def fits() -> list[str]:
    lines = [
        "",
        "| fit | CPU seconds | whitening | neighbor search | pseudo-labels | solver | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("scaling", "scaling-512"):
        found = results(name)
        for row in found["rows"] if found else []:
            stages = row["stages"]
            shares = " | ".join(
                f"{stages.get(stage, 0) / row['seconds']:.0%}"
                for stage in ("whiten", "neighbors", "labels", "optimize")
            )
            lines.append(
                f"| {row['n']:,} x {row['d']} -> {row['components']} | "
                f"{row['CPU seconds']:.1f} | {shares} | {row['peak MB']:.0f} |"
            )
    lines.append("")
    lines.append(
        f"Fit time grows as n^{results('scaling')['growth exponent']:.2f} with the number of rows."
    )
    if mapped := results("scaling-mapped"):
        took = [
            f"{row['n']:,} rows take {row['CPU seconds']:.0f} CPU seconds and "
            f"{row['peak MB'] / 1024:.1f} GB besides the file"
            for row in mapped["rows"]
        ]
        lines.append(f"From a memory-mapped file, {'; '.join(took)}.")
    return lines


def middle_fits() -> list[str]:
    """Fits of a few thousand rows, from fits.py."""
    lines = []
    for name, row in (results("fits") or {}).items():
        if name == "fresh process":
            lines.append(
                f"| import and fit of 1,000 x 64 in a fresh process of a plain installation | "
                f"{row['now']:.1f} CPU s | |"
            )
            continue
        (n, d), now = row["rows"], row["now"]
        share = now["whitening's share"]
        lines.append(
            f"| whole fit, {n:,} x {d} -> {row['components']} | {now['fit']:.1f} CPU s | "
            f"{now['fit / search and PCA']:.1f} x the exact 50 neighbors and one PCA; "
            f"{share:.0%} whitening, without the PCA; recommend {now['recommend / fit']:.2f}, "
            f'solver="stochastic" {now["stochastic / fit"]:.2f} of a fit |'
        )
    return lines


def targets() -> list[str]:
    """What was aimed at and is not met; fits by fits.py, ratios by their own benchmarks."""
    found, products = results("fits"), results("objective")
    aims: list[tuple[str, float, float, str]] = []
    for name, seconds in {"cub_googlenet": 2.7, "banking77_minilm": 1.7}.items():
        row = found[name]
        (n, d), now = row["rows"], row["now"]
        fit = f"fit of {n:,} x {d} -> {row['components']}"
        aims += [
            (f"CPU seconds of the {fit}", now["fit"], seconds, ".1f"),
            (f"{fit} over its neighbors and PCA", now["fit / search and PCA"], 3, ".1f"),
            (f"whitening's share of the {fit}", now["whitening's share"], 0.3, ".0%"),
            (f"`recommend` over the {fit}", now["recommend / fit"], 1.2, ".2f"),
            (f'`solver="stochastic"` over the {fit}', now["stochastic / fit"], 1, ".2f"),
        ]
    aims += [
        ("objective over its two products", products["evaluation / two products"], 1.3, ".2f"),
        ("`loss_and_gradients` over them", products["public / two products"], 1.3, ".2f"),
    ]
    for features, ratios in results("transform-memory")["CPU seconds / product"].items():
        aims += [
            (f"`transform` over its product, {features} features, {threads}", ratio, 1.3, ".2f")
            for threads, ratio in ratios.items()
        ]
    fresh = found["fresh process"]["now"]
    aims.append(("CPU seconds of a fit of 1,000 x 64 in a fresh process", fresh, 2, ".1f"))
    unmet = [aim for aim in aims if aim[1] > aim[2]]
    return [
        f"{len(aims) - len(unmet)} of {len(aims)} targets are met; these are not:",
        "",
        "| | measured | target |",
        "|---|---|---|",
        *(f"| {what} | {now:{style}} | {aim:{style}} |" for what, now, aim, style in unmet),
    ]


def stages() -> list[str]:
    """The parts of the default fit of the largest set of fits.py."""
    now = results("fits")["cub_googlenet"]["now"]
    parts = {
        "preparation": now["stage prepare"],
        "principal axes": now["principal axes"],
        "whitening": now["stage whiten"] - now["principal axes"],
        "neighbors": now["stage neighbors"],
        "pseudo-labels": now["stage labels"],
        "conjugate gradient and prefix order": now["stage optimize"],
    }
    lines = [f"| {title} | {seconds:.2f} |" for title, seconds in parts.items()]
    return ["| part | CPU seconds |", "|---|---|", *lines]


def stochastic() -> list[str]:
    """Both solvers on generated features, trained, from scaling.py."""
    parts = []
    for name, title in {"stochastic": '`solver="stochastic"`', "cg": "the batch solver"}.items():
        row = results(f"scaling-{name}")["rows"][0]
        parts.append(f"{title} takes {row['CPU seconds']:.1f} CPU s and {row['peak MB']:.0f} MB")
    return [
        f"At {row['n']:,} x {row['d']} -> {row['components']} {', '.join(parts)} (both trained, "
        f"`benchmarks/scaling.py --sizes {row['n']} --solver ...`, one thread, busy machine): the "
        "neighbor search, which both need, takes most of it."
    ]


def explorer() -> list[str]:
    """The explorer, from explorer.py."""
    found = results("explorer")
    prepared, page = found["map_and_clusters_64_features"], found["page"]
    size = f"{found['rows']:,} x {found['dimensions']}"
    lists = found["one_client"]["both, as the page asks"]
    timed = {
        "both neighbor lists over loopback, 128 and 64 dimensions": lists,
        "click on the map to both lists in the page": page["click_to_both_lists"],
        "lasso around 50,000 points, until they are painted": page["lasso"],
        "time between frames while panning all points": page["pan_between_frames"],
        "time between frames while the table scrolls": page["table_scroll_between_frames"],
        "a jump in the table until its cells are there": page["table_jump_until_filled"],
    }
    return [
        "| operation | time |",
        "|---|---|",
        f"| map and clusters, {size}, in the background | {prepared['cpu_seconds']:.0f} CPU s |",
        f"| the same from the cache next to the model | {prepared['seconds_from_cache']:.1f} s |",
        *(
            f"| {what} | median {row['p50_ms']:.0f} ms, 95% within {row['p95_ms']:.0f} ms |"
            for what, row in timed.items()
        ),
    ]


def replaced(page: str, start: str, stop: str, lines: list[str]) -> str:
    """Put lines between two markers of the page."""
    before, rest_of_page = page.split(start)
    after = rest_of_page.split(stop, 1)[1]
    return before + start + "\n".join([*lines, ""]) + stop + after


def main() -> None:
    head = ["| operation | time | compared with |", "|---|---|---|"]
    lines = [*head, *objective(), *solvers(), *search(), *rest(), *middle_fits(), *fits()]
    page = replaced(PAGE.read_text(encoding="utf8"), START, STOP, lines)
    for table in (targets, stages, stochastic, explorer):
        start = f"<!-- table: {table.__name__} -->\n"
        page = replaced(page, start, "<!-- end of table -->\n", table())
    PAGE.write_text(page, encoding="utf8")


if __name__ == "__main__":
    main()
