"""examples/shared_cache.c: two processes share prefixes, through a directory and through Redis.

    shared_cache.py PROGRAM
"""

import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

EXPECTED = """A: computed 8 blocks, stored 8
B: found 6 of 8 blocks, loaded 6, 6 as A computed them; computes 2
"""


def share(where):
    done = subprocess.run([sys.argv[1], where], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == EXPECTED, (where, done)


def start_server(folder):
    for _ in range(20):
        port = random.randrange(10000, 30000)
        server = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", folder,
                                   "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL)
        for _ in range(200):
            time.sleep(0.05)
            if server.poll() is not None:
                break  # the port is taken
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return server, port
            except OSError:
                pass
        server.kill()
        server.wait()
    raise AssertionError("redis-server does not start")


def main():
    with tempfile.TemporaryDirectory(prefix="quire_shared_") as folder:
        share(folder)
        print("through a directory: shared")
        if shutil.which("redis-server") is None:
            print("skipped: through Redis, there is no redis-server")
            return 77
        server, port = start_server(folder)
        try:
            share(f"127.0.0.1:{port}")
        finally:
            server.kill()
            server.wait()
        print("through Redis: shared")
    return 0


sys.exit(main())
