"""Pages to test with, what is known of them, and a browser to open them in."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]


def need_playwright():
    """Playwright here, or in the environment that setup.sh makes; else the test is skipped."""
    try:
        import playwright.sync_api
        return playwright.sync_api
    except ImportError:
        other = ROOT / "build" / "browser" / "bin" / "python"
        if other.exists() and Path(sys.executable) != other:
            os.execv(other, [str(other), *sys.argv])
        print("SKIPPED: Playwright is not installed; tests/viewer/setup.sh gets it")
        sys.exit(SKIPPED)


def need_chromium():
    for name in (os.environ.get("QUIRE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name) if name else None
        if found:
            return found
    print("SKIPPED: Chromium is not installed; tests/viewer/setup.sh gets it")
    sys.exit(SKIPPED)


class Made:
    """A page of a made-up run, with its report, steps and requests as the run itself wrote them."""

    def __init__(self, maker, folder, name, **options):
        self.path = folder / f"{name}.html"
        files = [folder / f"{name}.{end}" for end in ("json", "jsonl", "csv")]
        flags = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        subprocess.run([maker, *flags, self.path, *files], check=True)
        self.snapshots_path = files[1]
        self.report = json.loads(files[0].read_text())
        lines = [json.loads(line) for line in files[1].read_text().splitlines()]
        self.meta = lines[0]
        self.steps = {step["step"]: step for step in lines[1:]}
        names = ("id", "session", "prompt", "output", "hit", "preempted", "arrival", "scheduled",
                 "first_token", "end")
        with open(files[2], newline="") as rows:
            self.requests = {int(row[0]): dict(zip(names, map(float, row)))
                             for row in csv.reader(rows)}


class Replayed:
    """The page of a generated workload, with what `quire replay` says of it beside."""

    def __init__(self, quire, folder, *more, kind="chat", requests=400):
        self.path = folder / "replayed.html"
        workload, report, steps = (folder / f"replayed.{end}" for end in ("w", "json", "jsonl"))
        subprocess.run([quire, "generate", kind, "--requests", str(requests), "--rate", "20", "--seed",
                        "2", "--out", workload], check=True)
        subprocess.run([quire, "replay", workload, "--quiet", "--num-gpu-blocks", "2000", "--html",
                        self.path, "--json", report, "--trace", steps, *more], check=True)
        self.report = json.loads(report.read_text())
        self.steps = {step["step"]: step
                      for step in map(json.loads, steps.read_text().splitlines()[1:])}


def assembled(folder):
    """The live page, put together as the build does it."""
    page = folder / "live.html"
    subprocess.run(["cmake", "-DLIVE=ON", f"-DSOURCE={ROOT / 'viewer'}",
                    f"-DOUTPUT={folder / 'live_page.c'}", f"-DHTML={page}", "-P",
                    ROOT / "viewer" / "assemble.cmake"], check=True)
    return page.read_text()


UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "%": 0.01}


def number(text):
    """The first number of a text: "12,345 · 3 %" is 12345."""
    return float(re.search(r"-?[\d,]+(?:\.\d+)?", text)[0].replace(",", ""))


def quantity(text):
    """All of a text, by its units: "3 min 20 s" is 200 (seconds), "45.3 %" is 0.453."""
    parts = re.findall(r"([\d,]+(?:\.\d+)?)\s*(µs|ms|s|min|h|%)", text)
    return sum(float(value.replace(",", "")) * UNITS[unit] for value, unit in parts)
