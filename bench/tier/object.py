#!/usr/bin/env python3
"""Blocks to an object store and back: boto3, one after the other, and Quire's tier, in turns.

    PYTHON_WITH_BOTO3 bench/tier/object.py BENCH SERVER [--rounds 9] [--blocks 32] [--bytes 2097152] [--connections 32]

BENCH is quire_bench_tier_object, SERVER is object_server of tests/tier, a small server in C that keeps objects
in memory. Both sides use the same server, plain HTTP over loopback, and sign the SHA-256 of what they store.
Prints the median and the spread of the rounds, and of the ratios of each round.
"""

import argparse
import statistics
import subprocess
import sys
import time

import boto3
from botocore.config import Config

GOAL = 3.0


def make_client(url):
    # Checksums beyond the signature would cost boto3 more: without them.
    config = Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required",
                    response_checksum_validation="when_required", retries={"max_attempts": 0})
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="testing",
                        aws_secret_access_key="testing", config=config)


class Quire:
    def __init__(self, program, url, o):
        self.process = subprocess.Popen([program, url, "bench-quire", str(o.blocks), str(o.bytes), str(o.connections)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, what, number):
        self.process.stdin.write(f"{what} {number}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("quire_bench_tier_object ended")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run_boto3(s3, what, number, blocks):
    begin = time.perf_counter()
    for i, block in enumerate(blocks):
        name = f"{number % 4}/{i}"
        if what == "put":
            s3.put_object(Bucket="bench-boto3", Key=name, Body=block)
        else:
            assert len(s3.get_object(Bucket="bench-boto3", Key=name)["Body"].read()) == len(block)
    return time.perf_counter() - begin


def show(name, values, unit):
    print(f"{name:<28} {statistics.median(values):6.2f} ({min(values):.2f} .. {max(values):.2f}) {unit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("server")
    for name, value in (("rounds", 9), ("blocks", 32), ("bytes", 2 << 20), ("connections", 32)):
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    server = subprocess.Popen([o.server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{int(server.stdout.readline())}"
    s3, quire = make_client(url), Quire(o.bench, url, o)
    blocks = [bytes([i % 251]) * o.bytes for i in range(o.blocks)]
    rates = {}
    for number in range(o.rounds + 1):  # the first is a warm-up
        for what in ("put", "get"):
            seconds = {"boto3": run_boto3(s3, what, number, blocks), "Quire": quire.run(what, number)}
            for side, took in seconds.items():
                if number > 0:
                    rates.setdefault((side, what), []).append(o.blocks * o.bytes / took / 1e9)
    quire.close()
    server.stdin.close()
    server.wait()
    print(f"{o.blocks} blocks of {o.bytes} bytes, {o.rounds} rounds in turns; Quire: {o.connections} connections; "
          f"boto3 {boto3.__version__}: one after the other")
    for what in ("put", "get"):
        show(f"boto3 {what}", rates["boto3", what], "GB/s")
        show(f"Quire {what}", rates["Quire", what], "GB/s")
        ratios = [b / a for a, b in zip(rates["boto3", what], rates["Quire", what])]
        show("ratio of each round", ratios, f"(at least {GOAL:g})" if what == "put" else "")


if __name__ == "__main__":
    main()
