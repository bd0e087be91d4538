"""Builds what the comparison needs of Quire: the replayers, and the drop-in for an interpreter."""
import shutil
import subprocess
from pathlib import Path


def run(command, log):
    with open(log, "a", encoding="utf-8") as text:
        return subprocess.run(command, stdout=text, stderr=subprocess.STDOUT).returncode == 0


def replayers(root, folder, kinds, jobs, log):
    """Builds the replayers of these kinds into the folder; '' or what went wrong. One that cannot be
    built, for want of a library, is missing afterwards."""
    try:
        if not run(["cmake", "-S", root, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"], log):
            return f"cmake failed, see {log}"
        for kind in kinds:
            run(["cmake", "--build", folder, "--parallel", str(jobs), "--target", f"parity_{kind}"],
                log)
    except OSError as error:
        return f"cmake: {error.strerror}"
    return ""


def dropin(root, folder, reference, jobs, log):
    """A folder that has the package quire for the reference's interpreter, or why there is none."""
    build = folder / f"python-{reference.python_version}"
    try:
        is_built = run(
            ["cmake", "-S", root / "python", "-B", build, "-DCMAKE_BUILD_TYPE=Release",
             "-DQUIRE_BUILD_CLI=OFF", f"-DPython_EXECUTABLE={reference.python}"], log) and run(
            ["cmake", "--build", build, "--parallel", str(jobs), "--target", "_core", "_vllm"], log)
    except OSError as error:
        return f"cmake: {error.strerror}"
    if not is_built:
        return f"the drop-in was not built, see {log}"
    site = build / "site"
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(root / "python/quire", site / "quire",
                    ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for extension in build.glob("_*.so"):
        shutil.copy2(extension, site / "quire")
    return Path(site)
