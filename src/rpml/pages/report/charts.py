"""Charts as inline SVG without scripts, colored by the page's style sheet."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.intervals import Interval

WIDTH, HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 40
_TICKS = 5  # at most
_CHARACTER = 7  # pixels per character of a tick label
_CONSTANT = 1e-6  # relative range below which a curve is rounding noise


Values = Sequence[float] | NDArray[np.floating] | NDArray[np.integer]
Chart = dict[str, str]
"""The heading and the svg, already escaped."""


@dataclass(frozen=True)
class Series:
    """A line: its name, color (a class of the style sheet), values and intervals."""

    name: str
    tone: str
    values: Values
    intervals: Sequence[tuple[float, float]] = ()

    @classmethod
    def of_shares(cls, name: str, tone: str, shares: Sequence[Interval]) -> "Series":
        """Return a line of shares in percent."""
        ends = [(100 * share.low, 100 * share.high) for share in shares]
        return cls(name, tone, [100 * share.value for share in shares], ends)


@dataclass(frozen=True)
class Axis:
    """A map from values to pixels."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = (math.log10(max(v, 1e-300)) for v in (low, high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.stop - self.start)


def number(value: float) -> str:
    """Format a number for a tick or a caption."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}".replace("-", "−")
    if size >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers within [low, high]."""
    if not high > low:
        return [low]
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten within [low, high], or 1, 2 and 5 times them if the range is short."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if math.log10(high / low) < 2:
        fine = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        inside = [t for t in fine if low <= t * (1 + 1e-9) and t <= high * (1 + 1e-9)]
        return inside if len(inside) > 1 else ticks(low, high)
    step = max(1, math.ceil((last - first) / _TICKS))
    return [10.0**e for e in range(first, last + 1, step) if low <= 10.0**e <= high]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Format ticks as short texts that differ from each other."""
    texts = [number(v) for v in values]
    if len(set(texts)) == len(texts):
        return texts
    gap = min(abs(b - a) for a, b in itertools.pairwise(values))
    places = max(0, math.ceil(-math.log10(gap))) if gap > 0 else 0
    return [f"{v:,.{places}f}".replace("-", "−") for v in values]


def is_constant(values: NDArray[np.floating]) -> bool:
    """Whether a curve changes only by rounding."""
    finite = values[np.isfinite(values)]
    return len(finite) > 1 and bool(np.ptp(finite) <= _CONSTANT * np.abs(finite).max())


def line_chart(
    title: str, series: Sequence[Series], x_label: str, log: bool = False, names: Sequence[str] = ()
) -> Chart:
    """Draw lines over 0, 1, 2, ... or `names`; values without a logarithm are omitted."""
    lines = [np.asarray(s.values, np.float64) for s in series]
    ends = [np.ravel(s.intervals) for s in series]
    shown = [v[np.isfinite(v) & ((v > 0) | (not log))] for v in (*lines, *ends)]
    finite = np.concatenate(shown)
    if not len(finite):
        return _empty_chart(title, "nothing was recorded")
    low, high = float(finite.min()), float(finite.max())
    if not log:
        margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        low, high = low - margin, high + margin
    y = Axis(low, high, HEIGHT - _BOTTOM, _TOP, log)
    y_ticks = _named(log_ticks(low, high) if log else ticks(low, high))
    left = _left_margin(y_ticks.values())
    right = max([_RIGHT, *(4.0 * len(name) for name in names[-1:])])  # half of it sticks out
    x = Axis(0, max(1, max(len(v) for v in lines) - 1), left, WIDTH - right)
    marks = [_polyline(s, v, x, y) + _bars(s, x, y) for s, v in zip(series, lines, strict=True)]
    x_ticks: Mapping[float, str] = dict(enumerate(names)) or _named(ticks(0, x.high))
    frame = _y_axis(y, y_ticks, left) + _x_axis(x, x_ticks, x_label)
    changes = "; ".join(
        f"{s.name} from {number(v[0])} to {number(v[-1])}"
        for s, v in zip(series, lines, strict=True)
        if len(v)
    )
    return _chart(title, f" over {x_label}: {changes}", frame + "".join(marks))


def _polyline(series: Series, values: NDArray[np.float64], x: Axis, y: Axis) -> str:
    shown = [
        f"{x.at(i):.1f},{y.at(v):.1f}"
        for i, v in enumerate(values.tolist())
        if math.isfinite(v) and (v > 0 or not y.log)
    ]
    if len(shown) == 1:
        cx, cy = shown[0].split(",")
        return f'<circle class="dot {series.tone}" cx="{cx}" cy="{cy}" r="3.5"/>'
    return f'<polyline class="line {series.tone}" points="{" ".join(shown)}"/>'


def _bars(series: Series, x: Axis, y: Axis) -> str:
    """Draw the intervals of a line as vertical bars."""
    return "".join(
        f'<line class="bar-line {series.tone}" x1="{x.at(i):.1f}" x2="{x.at(i):.1f}" '
        f'y1="{y.at(low):.1f}" y2="{y.at(high):.1f}"/>'
        for i, (low, high) in enumerate(series.intervals)
    )


def histogram(title: str, values: Values, x_label: str, log_bins: bool = False) -> Chart:
    """Draw counts in bins of equal width, or of doubling width (for sizes)."""
    data = np.asarray(values, np.float64)
    if not len(data):
        return _empty_chart(title, "there is nothing to count")
    edges = _doubling(data) if log_bins else _equal(data)
    counts, _ = np.histogram(data, edges)
    y = Axis(0, float(counts.max()), HEIGHT - _BOTTOM, _TOP)
    y_ticks = _named([t for t in ticks(0, y.high) if t == int(t)])
    left = _left_margin(y_ticks.values())
    x = Axis(float(edges[0]), float(edges[-1]), left, WIDTH - _RIGHT, log=log_bins)
    bars = []
    for count, low, high in zip(counts.tolist(), edges, edges[1:], strict=False):
        start, stop, top = x.at(float(low)), x.at(float(high)), y.at(count)
        gap = 1.0 if stop - start > 4 else 0.0
        bars.append(
            f'<rect class="bar" x="{start + gap / 2:.1f}" y="{top:.1f}" '
            f'width="{max(0.5, stop - start - gap):.1f}" height="{y.start - top:.1f}"/>'
        )
    x_ticks = edges[:-1].tolist() if log_bins else ticks(x.low, x.high)
    if log_bins:
        x_ticks = x_ticks[:: max(1, math.ceil(len(x_ticks) / 7))]
    frame = _y_axis(y, y_ticks, left) + _x_axis(x, _named(x_ticks), x_label)
    fullest = int(counts.argmax())
    text = (
        f": {len(data):,} values from {number(float(data.min()))} to "
        f"{number(float(data.max()))}, median {number(float(np.median(data)))}, most of them "
        f"between {number(float(edges[fullest]))} and {number(float(edges[fullest + 1]))}"
    )
    return _chart(title, text, frame + "".join(bars))


def _equal(data: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = float(data.min()), float(data.max())
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.05 * max(1.0, abs(low)), high + 0.05 * max(1.0, abs(high))
    return np.linspace(low, high, 33)


def _doubling(data: NDArray[np.float64]) -> NDArray[np.float64]:
    top = max(1, math.ceil(math.log2(float(data.max()) + 1)))
    return np.asarray(2.0 ** np.arange(top + 1))


def interval_chart(title: str, series: Sequence[Series], x_label: str) -> Chart:
    """Draw one dot with its whisker per series, below each other, and a line at zero."""
    height = 34 + 30 * len(series) + 30
    ends = [0.0, *(end for s in series for end in s.intervals[0])]
    margin = 0.08 * (max(ends) - min(ends)) or 1.0
    most = WIDTH // 2 // _CHARACTER
    names = [s.name if len(s.name) <= most else s.name[: most - 1] + "…" for s in series]
    left = _left_margin(names)
    x = Axis(min(ends) - margin, max(ends) + margin, left, WIDTH - _RIGHT)
    base = height - _BOTTOM
    parts = [f'<line class="zero" x1="{x.at(0):.1f}" x2="{x.at(0):.1f}" y1="{_TOP}" y2="{base}"/>']
    described = []
    for i, s in enumerate(series):
        y, value, (low, high) = 28 + 30 * i, s.values[0], s.intervals[0]
        parts.append(
            f'<text class="name" x="{left - 8:.1f}" y="{y + 4}">{escape(names[i])}</text>'
            f'<line class="line {s.tone}" x1="{x.at(low):.1f}" x2="{x.at(high):.1f}" '
            f'y1="{y}" y2="{y}"/><circle class="dot {s.tone}" cx="{x.at(value):.1f}" '
            f'cy="{y}" r="5"/>'
        )
        described.append(f"{s.name} {number(value)}, interval {number(low)} to {number(high)}")
    frame = _x_axis(x, _named(ticks(x.low, x.high)), x_label, base)
    return _chart(title, f": {'; '.join(described)}", frame + "".join(parts), height)


def _empty_chart(title: str, reason: str) -> Chart:
    text = f'<text class="nothing" x="{WIDTH / 2}" y="{HEIGHT / 2}">{escape(reason)}</text>'
    return _chart(title, f": {reason}", text)


def _left_margin(texts: Collection[str]) -> float:
    """Return the width of the longest label of the y axis."""
    return max(_LEFT, 14 + _CHARACTER * max((len(text) for text in texts), default=0))


def _y_axis(axis: Axis, values: Mapping[float, str], left: float) -> str:
    parts = []
    for value, text in values.items():
        y = axis.at(value)
        parts.append(
            f'<line class="grid" x1="{left:.1f}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick y" x="{left - 6:.1f}" y="{y + 4:.1f}">{text}</text>'
        )
    return "".join(parts)


def _named(values: Sequence[float]) -> dict[float, str]:
    return dict(zip(values, tick_texts(values), strict=True))


def _x_axis(
    axis: Axis, values: Mapping[float, str], label: str, y: float = HEIGHT - _BOTTOM
) -> str:
    parts = [f'<line class="axis" x1="{axis.start}" x2="{axis.stop}" y1="{y}" y2="{y}"/>']
    parts += [
        f'<text class="tick x" x="{axis.at(v):.1f}" y="{y + 15}">{text}</text>'
        for v, text in values.items()
    ]
    middle = (axis.start + axis.stop) / 2
    parts.append(f'<text class="label" x="{middle:.0f}" y="{y + 33}">{escape(label)}</text>')
    return "".join(parts)


def _chart(heading: str, description: str, body: str, height: int = HEIGHT) -> Chart:
    svg = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(heading + description)}">{body}</svg>'
    )
    return {"heading": heading, "svg": svg}
