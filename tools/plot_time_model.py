#!/usr/bin/env python3
"""Draws predicted against measured step times: docs/images/time-model.svg.

    tools/plot_time_model.py build/cli/quire STEPS.csv [MORE.csv ...] > docs/images/time-model.svg

Left: predicted over measured, both logarithmic; the band is 12 % to either side. Right: the error of
each step over its measured time. Needs nothing but Python.
"""

import html
import json
import math
import subprocess
import sys

WIDTH, HEIGHT = 1040, 470
TOP, BOTTOM, PANEL = 70, 400, 400
LEFTS = (70, 590)
COLORS = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490")
BAND = 0.12
ERROR_RANGE = 25.0


def steps_of(program, path):
    done = subprocess.run([program, "time", "--csv", path, "--json"], capture_output=True, text=True,
                          check=True)
    return [s for s in json.loads(done.stdout)["steps"] if "measured_ms" in s]


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


class Axes:
    """Places on the page of times and errors."""

    def __init__(self, steps):
        times = [s["measured_ms"] for s in steps] + [s["predicted_ms"] for s in steps]
        self.low = math.log10(min(times)) - 0.05
        self.high = math.log10(max(times)) + 0.05

    def share(self, ms):
        return (math.log10(ms) - self.low) / (self.high - self.low)

    def x(self, panel, ms):
        return LEFTS[panel] + PANEL * self.share(ms)

    def y(self, ms):
        return BOTTOM - (BOTTOM - TOP) * self.share(ms)

    @staticmethod
    def error_y(percent):
        clipped = max(-ERROR_RANGE, min(ERROR_RANGE, percent))
        return (TOP + BOTTOM) / 2 - (BOTTOM - TOP) / 2 * clipped / ERROR_RANGE

    def ticks(self):
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for digit in (1, 2, 5):
                ms = digit * 10.0 ** power
                if self.low <= math.log10(ms) <= self.high:
                    yield ms


def text(x, y, words, anchor="middle", size=12, extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>'
            f"{html.escape(words)}</text>")


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def mark(x, y, color, kind, title):
    if kind == "prefill":
        shape = f'<path d="M{x:.1f} {y - 5:.1f}l4.6 8h-9.2z"'
    else:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6"'
    return f'{shape} fill="{color}" fill-opacity="0.75"><title>{html.escape(title)}</title>' + (
        "</path>" if kind == "prefill" else "</circle>")


def frames(axes):
    thin = 'stroke="#d4d4d8" stroke-width="1"'
    for panel in (0, 1):
        left = LEFTS[panel]
        for ms in axes.ticks():
            x = axes.x(panel, ms)
            yield line(x, TOP, x, BOTTOM, thin)
            yield text(x, BOTTOM + 18, f"{ms:g}")
        yield text(left + PANEL / 2, BOTTOM + 40, "measured, ms", size=13)
    for ms in axes.ticks():
        yield line(LEFTS[0], axes.y(ms), LEFTS[0] + PANEL, axes.y(ms), thin)
        yield text(LEFTS[0] - 8, axes.y(ms) + 4, f"{ms:g}", "end")
    yield text(18, (TOP + BOTTOM) / 2, "predicted, ms", size=13,
               extra=f'transform="rotate(-90 18 {(TOP + BOTTOM) / 2})"')
    for percent in range(-20, 21, 10):
        y = axes.error_y(percent)
        yield line(LEFTS[1], y, LEFTS[1] + PANEL, y, thin if percent else 'stroke="#52525b"')
        yield text(LEFTS[1] - 8, y + 4, f"{percent:+d} %" if percent else "0", "end")
    low, high = 10 ** axes.low, 10 ** axes.high
    points = [(low, low * (1 + BAND)), (high / (1 + BAND), high), (high, high),
              (high, high * (1 - BAND)), (low / (1 - BAND), low), (low, low)]
    path = " ".join(f"{axes.x(0, a):.1f},{axes.y(b):.1f}" for a, b in points)
    yield f'<polygon points="{path}" fill="#a1a1aa" fill-opacity="0.18"/>'
    yield line(axes.x(0, low), axes.y(low), axes.x(0, high), axes.y(high), 'stroke="#52525b"')
    y = axes.error_y(100 * BAND)
    yield (f'<rect x="{LEFTS[1]}" y="{y:.1f}" width="{PANEL}" '
           f'height="{axes.error_y(-100 * BAND) - y:.1f}" fill="#a1a1aa" fill-opacity="0.18"/>')


def draw(series):
    every = [s for _, steps in series for s in steps]
    axes = Axes(every)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="system-ui, sans-serif" fill="#27272a">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield from frames(axes)
    for number, ((name, steps), color) in enumerate(zip(series, COLORS)):
        x, y = LEFTS[number % 2], 22 + 20 * (number // 2)
        for s in steps:
            error = 100 * s["error"]
            title = (f'{s["model"]}, {s["kind"]}, {s["tokens"]} tokens, context {s["context"]}: '
                     f'{s["measured_ms"]:.2f} ms, predicted {s["predicted_ms"]:.2f} ms')
            x_of = s["measured_ms"]
            yield mark(axes.x(0, x_of), axes.y(s["predicted_ms"]), color, s["kind"], title)
            yield mark(axes.x(1, x_of), axes.error_y(error), color, s["kind"], title)
        errors = [abs(s["error"]) for s in steps]
        label = f"{name}: median {100 * median(errors):.1f} %, worst {100 * max(errors):.1f} %"
        yield mark(x + 4, y, color, "decode", name)
        yield text(x + 14, y + 4, label, "start")
    yield text(LEFTS[1] + PANEL, HEIGHT - 10, "triangles: prefill; circles: decode", "end", 11)
    yield "</svg>"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    series = {}
    for number, path in enumerate(sys.argv[2:]):
        for step in steps_of(sys.argv[1], path):
            name = step["model"] + (" (not fitted)" if number > 0 else "")
            series.setdefault(name, []).append(step)
    print("\n".join(draw(list(series.items()))))


if __name__ == "__main__":
    main()
