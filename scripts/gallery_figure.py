"""Draw docs/figures/gallery.svg from the printed outputs of docs/gallery.md; --check compares."""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
TARGET = DOCS / "figures" / "gallery.svg"
OUTPUT = re.compile(r"<!-- output -->\n```text\n(.*?)```", re.DOTALL)
SHARE = re.compile(r"((?:16 )?[A-Za-z][^:%\n]*): (\d+\.\d)%")
LEFT, WIDTH, LINE = 260, 640, 20  # pixels
LEARNED, PLAIN = "#1f6feb", "#8b949e"


def cases(page: str) -> dict[str, list[tuple[str, float]]]:
    """By section, what was measured and its share in percent."""
    found = {}
    for section in page.split("\n## ")[1:]:
        title = section.split("\n")[0].split(":")[0]
        text = "\n".join(OUTPUT.findall(section))
        found[title] = [(name.strip(), float(share)) for name, share in SHARE.findall(text)]
    return {title: shares for title, shares in found.items() if shares}


def drawn(measured: dict[str, list[tuple[str, float]]]) -> str:
    """One bar per figure, from 0 to 100%; blue bars are fits of rpml."""
    parts, y = [], 8
    for title, shares in measured.items():
        y += LINE + 6
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{escape(title)}</text>')
        for name, share in shares:
            y += LINE
            color = PLAIN if name.startswith(("raw", "PCA")) else LEARNED
            length = share / 100 * (WIDTH - LEFT - 60)
            parts += [
                f'<text x="20" y="{y}">{escape(name)}</text>',
                f'<rect x="{LEFT}" y="{y - 12}" width="{length:.1f}" height="14" fill="{color}"/>',
                f'<text x="{LEFT + length + 6:.1f}" y="{y}">{share:.1f}%</text>',
            ]
    size = f'viewBox="0 0 {WIDTH} {y + 14}" font-family="sans-serif" font-size="13"'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    head.append("<title>How often the nearest row is of the right class, in every case</title>")
    head.append(f'<rect width="{WIDTH}" height="{y + 14}" fill="white"/>')
    return "\n".join([*head, *parts, "</svg>\n"])


def main() -> int:
    picture = drawn(cases((DOCS / "gallery.md").read_text(encoding="utf8")))
    if "--check" in sys.argv:
        return int(TARGET.read_text(encoding="utf8") != picture)
    TARGET.write_text(picture, encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
