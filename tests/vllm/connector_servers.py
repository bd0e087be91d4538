"""What the tiers of the connector test store in: a Redis cluster, an object store, a small disk.

Real servers, which go away with the block. Each has `pids`: what a fault stops, continues or kills.
"""
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "quire-test"
MIB = 1 << 20


def free_ports(count):
    """Below the ports that the system gives to clients: a Redis node listens at its port + 10,000 too."""
    found, numbers = [], random.Random()
    while len(found) < count:
        port = numbers.randrange(12_000, 22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def wait_for(port, name):
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{name} does not answer")


def moto_python():
    """An interpreter with PyPI's moto, or None."""
    for name in (os.environ.get("QUIRE_MOTO_PYTHON"), ROOT / "build/moto/venv/bin/python"):
        if name and Path(name).exists() and not subprocess.run(
                [name, "-c", "import moto.server"], capture_output=True).returncode:
            return Path(name)
    return None


class Servers:
    """Processes and their folder."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.processes = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_raised):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def spawn(self, *command):
        self.processes.append(subprocess.Popen(
            [str(word) for word in command], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL))


class RedisCluster(Servers):
    """Three nodes, each with a third of the slots; without one, the others go on."""

    def start(self):
        ports = free_ports(3)
        for port in ports:
            self.spawn("redis-server", "--port", port, "--save", "", "--maxmemory", "1gb",
                       "--maxmemory-policy", "allkeys-lru", "--cluster-enabled", "yes",
                       "--cluster-config-file", f"nodes-{port}.conf", "--cluster-node-timeout", 2000,
                       "--cluster-require-full-coverage", "no")
        for port in ports:
            wait_for(port, "redis-server")
        self.nodes = [f"127.0.0.1:{port}" for port in ports]
        subprocess.run(["redis-cli", "--cluster", "create", *self.nodes, "--cluster-yes"], check=True,
                       capture_output=True, timeout=60)
        for port in ports:
            self.wait_until_whole(port)

    @staticmethod
    def wait_until_whole(port):
        for _ in range(200):
            said = subprocess.run(["redis-cli", "-p", str(port), "cluster", "info"],
                                  capture_output=True, text=True).stdout
            if "cluster_slots_ok:16384" in said:
                return
            time.sleep(0.05)
        raise RuntimeError("the Redis cluster is not whole")

    def options(self):
        return {"servers": self.nodes, "timeout_ms": 500}


class ObjectStore(Servers):
    """PyPI's moto, with one bucket."""

    def start(self):
        self.port, = free_ports(1)
        self.spawn(moto_python().parent / "moto_server", "-H", "127.0.0.1", "-p", self.port)
        wait_for(self.port, "moto_server")
        for name in ("", f"/{BUCKET}"):
            urllib.request.urlopen(urllib.request.Request(
                self.url + name, method="PUT" if name else "GET")).read()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def options(self):
        return {"bucket": BUCKET, "endpoint": self.url, "access_key": "testing",
                "secret_key": "testing", "timeout_ms": 2000, "connections": 8}


@contextlib.contextmanager
def folder_of(size):
    """A folder; with a size, a file system of its own that holds no more."""
    with tempfile.TemporaryDirectory() as folder:
        if not size:
            yield folder
            return
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def can_mount():
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    with contextlib.suppress(subprocess.CalledProcessError, OSError):
        with folder_of(MIB):
            return True
    return False
