"""Copy the main table of docs/results.md into the README, between its two marks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: benchmarks/readme_figures.py -->", "<!-- end figures -->"


def main() -> None:
    page = (ROOT / "docs/results.md").read_text(encoding="utf8")
    section = re.search(r"## RPML against the best[^\n]*\n(.*?)\n## ", page, re.DOTALL)
    if section is None:
        sys.exit("docs/results.md has no section 'RPML against the best ...': run make results.")
    table = "\n".join(line for line in section[1].splitlines() if line.startswith("|"))
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf8")
    print("README.md updated")


if __name__ == "__main__":
    main()
