"""`quire tier redis-cluster`: up, status, down, and what it says when something is in the way.

    cluster_cli.py QUIRE
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile

QUIRE = sys.argv[1]


def is_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def free_ports(count):
    while True:
        port = random.randrange(10000, 22000)
        if all(is_free(port + i) and is_free(port + 10000 + i) for i in range(count)):
            return port


def tier(*words, status=0, env=None):
    done = subprocess.run([QUIRE, "tier", *words], capture_output=True, text=True, env=env)
    text = done.stdout + done.stderr
    assert done.returncode == status, (words, done.returncode, text)
    return text


def ask(port, *words):
    command = f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(command.encode())
        return s.recv(65536).decode()


def wrong_calls():
    assert "up, down or status" in tier(status=2)
    assert "up, down or status" in tier("redis-cluster", "sideways", status=2)
    assert "--maxmemory" in tier("redis-cluster", "up", "--maxmemory", "1gb\nport 1", status=2)
    assert "redis-cluster" in tier("--help")


def without_server(where, port):
    text = tier("redis-cluster", "up", "--dir", where, "--port", str(port), status=1,
                env={**os.environ, "PATH": "/nonexistent"})
    assert "redis-server is not installed" in text, text
    assert not os.path.exists(where)
    assert "no cluster in" in tier("redis-cluster", "down", "--dir", where, status=1)


def up_and_down(where, port):
    place = ["--dir", where]
    text = tier("redis-cluster", "up", *place, "--port", str(port), "--nodes", "2",
                "--maxmemory", "32mb")
    assert f"--redis 127.0.0.1:{port}" in text and "2 of 2 nodes know all slots" in text, text
    assert "maxmemory-policy\r\n$11\r\nallkeys-lru" in ask(port, "CONFIG", "GET", "maxmemory-policy")
    assert "cluster_slots_ok:16384" in ask(port + 1, "CLUSTER", "INFO")
    assert "is already running" in tier("redis-cluster", "up", *place, "--port", str(port), "--nodes", "2")
    assert "down first" in tier("redis-cluster", "up", *place, "--port", str(port + 9), status=1)
    other = where + "-other"
    assert "another server listens" in tier("redis-cluster", "up", "--dir", other, "--port",
                                            str(port), status=1)
    assert tier("redis-cluster", "status", *place).count(" up  cluster ok") == 2
    ask(port + 1, "SHUTDOWN", "NOSAVE")
    assert "down" in tier("redis-cluster", "status", *place, status=1)
    assert "2 nodes stopped" in tier("redis-cluster", "down", *place)
    assert is_free(port) and is_free(port + 1) and not os.path.exists(where)


def main():
    wrong_calls()
    folder = tempfile.mkdtemp(prefix="quire_cluster_")
    where = os.path.join(folder, "cluster")
    port = free_ports(2)
    try:
        without_server(where, port)
        if shutil.which("redis-server") is None:
            print("skipped: there is no redis-server")
            return 77
        up_and_down(where, port)
    finally:
        if os.path.exists(where):
            subprocess.run([QUIRE, "tier", "redis-cluster", "down", "--dir", where], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print("quire tier redis-cluster: up, status, down")
    return 0


sys.exit(main())
