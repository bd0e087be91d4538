#!/usr/bin/env python3
"""`quire fleet --shared-tier` and `--peer-memory`: loads to the microsecond, sums that add up,
outages, refusals.

    tests/cli/program/test_fleet_shared.py QUIRE
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
BLOCK = 2097152  # bytes of 16 tokens of llama-3.1-8b
REASONS = ("partial", "last_token", "not_ready", "evicted", "wrong_worker", "stale_view")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Shared(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, *requests):
        """A trace of prompts: (time in s, prompt tokens, output tokens, first block id)."""
        with open(self.path("trace.jsonl"), "w", encoding="utf-8") as file:
            for time, tokens, outputs, first in requests:
                ids = list(range(first, first + (tokens + 511) // 512))
                file.write(json.dumps({"timestamp": int(time * 1000), "input_length": tokens,
                                       "output_length": outputs, "hash_ids": ids}) + "\n")
        return self.path("trace.jsonl")

    def generate(self, *args):
        run("generate", "mixed", "--out", self.path("mixed.jsonl"), *args)
        return self.path("mixed.jsonl")

    def fleet(self, *args, threads=("1", "2", "8")):
        """The report and the rows, in the order of the trace; the same with any threads."""
        texts = []
        for number in threads:
            run("fleet", "--quiet", "--deterministic", "--threads", number, "--json",
                self.path("j"), "--csv", self.path("c"), *args)
            texts.append(read(self.path("j")) + read(self.path("c")))
        self.assertTrue(all(text == texts[0] for text in texts), args)
        r = json.loads(read(self.path("j")))
        rows = sorted(csv.DictReader(read(self.path("c")).splitlines()),
                      key=lambda row: int(row["request"]))
        self.check(r, rows)
        return r, rows

    def check(self, r, rows):
        """Each request ends once, all sums add up, and no block is left in use."""
        self.assertEqual(len({row["request"] for row in rows}), len(rows))
        self.assertEqual(r["requests"], len(rows))
        self.assertEqual(r["unfinished"], 0)
        lost = r["losses"]
        self.assertEqual(r["ideal_tokens"], r["hit_tokens"] - lost["beyond_ideal_tokens"] +
                         sum(lost.get(f"{reason}_tokens", 0) for reason in REASONS))
        fleet = r.get("fleet", {})
        tier = fleet.get("shared_tier", fleet.get("peer_memory"))
        if tier is None:
            return
        self.assertLessEqual(tier["blocks_at_end"], tier["blocks"])
        self.assertEqual(tier["blocks_at_end"],
                         tier["stored_blocks"] - tier["evicted_blocks"] - tier["lost_blocks"])
        if "workers" not in fleet:
            return
        workers = r["fleet"]["workers"]
        self.assertEqual([w["active_blocks_at_end"] for w in workers], [0] * len(workers))
        self.assertEqual(tier["hit_tokens"], sum(w["shared_hit_tokens"] for w in workers))
        self.assertEqual(tier["hit_tokens"], sum(int(row["shared_tokens"]) for row in rows))
        for row in rows:
            self.assertLessEqual(int(row["shared_tokens"]), int(row["hit_tokens"]))

    def check_time(self, text, seconds):
        self.assertAlmostEqual(float(text), seconds, delta=2.1e-6)

    def last_step(self):
        """Seconds of the last block of a prompt of 1,600 tokens, when all others are there."""
        _, rows = self.fleet("--workers", "1", self.write((0, 1600, 2, 1), (5, 1600, 2, 1)),
                             threads=("1",))
        self.assertEqual(rows[1]["hit_tokens"], "1584")
        return float(rows[1]["first_token_s"]) - 5

    # ---- loads --------------------------------------------------------------------

    def test_a_load_to_the_microsecond(self):
        last = self.last_step()
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        size = 99 * BLOCK  # one token at least is computed, so the last block is
        for bandwidth, client, latency in ((10, None, 100), (5, None, 100), (10, 5, 100),
                                           (5, 10, 2000)):
            own = "" if client is None else f",client-bandwidth={client}"
            r, rows = self.fleet("--workers", "2", "--shared-tier",
                                 f"blocks=1000,bandwidth={bandwidth},latency={latency}{own}", trace)
            rate = min(bandwidth, client or bandwidth) * 1e9
            load = latency * 1e-6 + size / rate
            self.check_time(rows[1]["first_token_s"], 5 + load + last)
            self.assertEqual((rows[1]["worker"], rows[1]["hit_tokens"], rows[1]["shared_tokens"]),
                             ("1", "1584", "1584"))
            tier = r["fleet"]["shared_tier"]
            self.assertEqual((tier["loads"], tier["loaded_blocks"], tier["stored_blocks"]),
                             (1, 99, 100))
            self.assertAlmostEqual(tier["load_ms"]["max"], load * 1e3, delta=2e-3)
            self.assertEqual((tier["loaded_bytes"], tier["stored_bytes"]), (size, 100 * BLOCK))

    def test_workers_share_the_bandwidth(self):
        """The prompt is in the tier. Two workers load it at once: each has half of the bandwidth,
        or what it may have at most."""
        last = self.last_step()
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1), (5, 1600, 2, 1))
        for more, rate in (("", 5e9), (",client-bandwidth=7", 5e9), (",client-bandwidth=2", 2e9)):
            r, rows = self.fleet("--workers", "3", "--shared-tier",
                                 f"blocks=1000,bandwidth=10{more}", trace)
            for row in rows[1:]:
                self.check_time(row["first_token_s"], 5 + 100e-6 + 99 * BLOCK / rate + last)
            self.assertEqual(r["fleet"]["shared_tier"]["max_loads"], 2)

    def test_half_of_the_bandwidth_takes_twice_as_long(self):
        trace = self.write(*((5 * i, 8000, 2, 1) for i in range(8)))
        means = []
        for bandwidth in (4, 2, 1):
            r, _ = self.fleet("--workers", "8", "--shared-tier",
                              f"blocks=1000,bandwidth={bandwidth},latency=1", trace)
            self.assertEqual(r["fleet"]["shared_tier"]["loads"], 7)
            means.append(r["fleet"]["shared_tier"]["load_ms"]["mean"])
        for slower, faster in zip(means[1:], means):
            self.assertAlmostEqual(slower / faster, 2, delta=1e-4)

    def test_one_worker_finds_what_its_gpu_has_evicted(self):
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 50), (10, 1600, 2, 1))
        r, rows = self.fleet("--workers", "1", "--num-gpu-blocks", "120", "--shared-tier",
                             "blocks=1000,bandwidth=10", trace)
        tier = r["fleet"]["shared_tier"]
        self.assertEqual((tier["hit_tokens"], tier["loads"], r["hit_tokens"]), (1296, 1, 1584))
        r, _ = self.fleet("--workers", "1", "--num-gpu-blocks", "120", trace)
        self.assertEqual(r["hit_tokens"], 1584 - 1296)  # what is left in the GPU
        self.assertNotIn("fleet", r)

    def test_the_tier_evicts_what_was_not_used_for_longest(self):
        """Room for two prompts: the third one evicts the second, which was not used since."""
        trace = self.write((0, 1601, 1, 1), (5, 1601, 1, 50), (10, 1601, 1, 1), (15, 1601, 1, 90),
                           (20, 1601, 1, 1), (25, 1601, 1, 50))
        _, rows = self.fleet("--workers", "6", "--shared-tier", "blocks=200,bandwidth=10", trace)
        self.assertEqual([row["shared_tokens"] for row in rows],
                         ["0", "0", "1600", "0", "1600", "0"])

    def test_bytes_are_blocks(self):
        trace = self.write((0, 1600, 1, 1))
        for size, blocks in ((100 * BLOCK, 100), (101 * BLOCK - 1, 100)):
            r, _ = self.fleet("--workers", "2", "--shared-tier", f"bytes={size},bandwidth=1", trace)
            self.assertEqual(r["fleet"]["shared_tier"]["blocks"], blocks)

    # ---- peers' host memory -----------------------------------------------------------

    def test_a_load_from_a_peer(self):
        last = self.last_step()
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        for bandwidth, host in ((10, 55), (5, 55), (10, 1)):  # the host's link is not on the way
            r, rows = self.fleet("--workers", "2", "--peer-memory",
                                 f"blocks=1000,bandwidth={bandwidth},host-bandwidth={host}", trace)
            load = 100e-6 + 99 * BLOCK / (bandwidth * 1e9)
            self.check_time(rows[1]["first_token_s"], 5 + load + last)
            got = r["fleet"]["peer_memory"]
            self.assertEqual((got["blocks"], got["loads"], got["peer_blocks"]), (2000, 1, 99))
            self.assertEqual((got["hit_tokens"], got["peer_hit_tokens"]), (1584, 1584))
            self.assertEqual(got["stored_blocks"], 200)  # what was loaded is in its own memory too

    def test_loads_share_what_a_peer_sends(self):
        last = self.last_step()
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1), (5, 1600, 2, 1))
        _, rows = self.fleet("--workers", "3", "--peer-memory", "blocks=1000,bandwidth=10", trace)
        for row in rows[1:]:
            self.check_time(row["first_token_s"], 5 + 100e-6 + 99 * BLOCK / 5e9 + last)

    def test_own_host_memory_comes_first(self):
        """The GPU has 19 blocks of the prompt left; the host has the others, and so has the peer."""
        trace = self.write((0, 1600, 1, 1), (5, 1600, 1, 1), (10, 1600, 1, 50), (15, 1600, 1, 90),
                           (20, 1600, 1, 1))
        load = {}
        for host in (20, 10):
            r, rows = self.fleet("--workers", "2", "--num-gpu-blocks", "120", "--peer-memory",
                                 f"blocks=1000,bandwidth=50,host-bandwidth={host}", trace)
            self.assertEqual((rows[4]["worker"], rows[4]["shared_tokens"]), ("0", "1280"))
            self.assertEqual(r["fleet"]["peer_memory"]["peer_hit_tokens"], 1584)  # the second
            load[host] = float(rows[4]["first_token_s"])
        self.assertAlmostEqual(load[10] - load[20], 80 * BLOCK / 20e9, delta=2.1e-6)

    def test_a_load_of_two_peers(self):
        """Worker 0 has the first half, worker 1 all of it: worker 2 gets a half from each, over its
        own network link."""
        trace = self.write((0, 1024, 1, 1), (5, 2048, 1, 1), (10, 2048, 1, 1))
        r, rows = self.fleet("--workers", "3", "--peer-memory", "blocks=1000,bandwidth=10", trace)
        self.assertEqual([row["shared_tokens"] for row in rows], ["0", "1024", "2032"])
        got = r["fleet"]["peer_memory"]
        self.assertEqual((got["loads"], got["peer_blocks"]), (2, 64 + 127))
        self.assertAlmostEqual(got["load_ms"]["max"], 0.1 + 127 * BLOCK / 10e6, delta=2e-3)

    # ---- more -----------------------------------------------------------------------

    def test_all_adds_up(self):
        trace = self.generate("--requests", "300", "--rate", "12")
        fleet = ("--workers", "4", "--num-gpu-blocks", "8000", trace)
        plain, _ = self.fleet(*fleet, threads=("2",))
        for profile, router in (("default", "round-robin"), ("vllm-0.20", "dynamo-kv"),
                                ("vllm-0.32", "llm-d"), ("vllm-0.32", "round-robin")):
            with self.subTest(profile=profile, router=router):
                r, rows = self.fleet(*fleet, "--router", router, "--profile", profile,
                                     "--shared-tier",
                                     "blocks=20000,bandwidth=100,client-bandwidth=25")
                self.assertEqual(len(rows), plain["requests"])
                if router == "round-robin":
                    self.assertGreater(r["fleet"]["shared_tier"]["hit_tokens"], 100000)
                    self.assertGreater(r["hit_tokens"], 1.2 * plain["hit_tokens"])
                    self.assertGreater(r["fleet"]["shared_tier"]["evicted_blocks"], 0)
            r, _ = self.fleet(*fleet, "--profile", profile, "--peer-memory", "blocks=9000")
            self.assertGreater(r["fleet"]["peer_memory"]["peer_hit_tokens"], 100000)
            self.assertGreater(r["fleet"]["peer_memory"]["evicted_blocks"], 0)

    def test_async_scheduling_and_pools(self):
        trace = self.generate("--requests", "200", "--rate", "20")
        r, _ = self.fleet("--pool", "serve:2:num-gpu-blocks=8000", "--pool",
                          "serve:1:gpu=H100,num-gpu-blocks=9000", "--async-scheduling",
                          "--shared-tier", "blocks=30000,bandwidth=50", trace)
        self.assertGreater(r["fleet"]["shared_tier"]["loads"], 20)

    # ---- outages ----------------------------------------------------------------------

    def test_outages(self):
        """The tier has the prompt of the first request. The others come one after the other: before
        the outage, with a load that it interrupts, in it, and behind it."""
        times = (0, 5, 10, 15, 25)
        trace = self.write(*((time, 1600, 2, 1) for time in times))
        tier = ("--workers", "5", "--shared-tier", "blocks=1000,bandwidth=1")
        prompt = float(self.fleet(*tier, trace)[1][0]["first_token_s"])
        for lose, found in (("", "1584"), (",lose=1", "0")):
            r, rows = self.fleet(*tier, "--fail", f"tier:from=10.1,to=20{lose}", trace)
            self.assertEqual([row["shared_tokens"] for row in rows], ["0", "1584", "0", "0", found])
            self.check_time(rows[2]["first_token_s"], 10.1 + prompt)  # begins again at the outage
            self.check_time(rows[3]["first_token_s"], 15 + prompt)
            got = r["fleet"]["shared_tier"]
            self.assertEqual((got["outages"], got["failed_loads"], got["failed_blocks"]),
                             (1, 1, 99))
            self.assertEqual(got["lost_blocks"], 100 if lose else 0)
            self.assertGreater(got["refused_blocks"], 0)
        r, rows = self.fleet(*tier, "--fail", "tier:from=0.1,to=1", trace)  # in the first store
        self.assertEqual(r["fleet"]["shared_tier"]["failed_stored_blocks"], 100)
        self.assertEqual(rows[1]["shared_tokens"], "0")
        self.assertEqual(rows[2]["shared_tokens"], "1584")  # from the second one

    def test_an_outage_without_end_is_a_fleet_without_a_tier(self):
        trace = self.generate("--requests", "150", "--rate", "20")
        fleet = ("--workers", "3", "--num-gpu-blocks", "8000", trace)
        plain, rows = self.fleet(*fleet, threads=("1",))
        r, down = self.fleet(*fleet, "--shared-tier", "blocks=1000,bandwidth=1", "--fail",
                             "tier:from=0")
        self.assertEqual([row["end_s"] for row in down], [row["end_s"] for row in rows])
        self.assertEqual(r["fleet"]["shared_tier"]["loads"], 0)
        self.assertEqual(r["hit_tokens"], plain["hit_tokens"])

    # ---- the report, refusals ------------------------------------------------------------

    def test_report(self):
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        for workers in ("1", "2"):
            text = run("fleet", "--workers", workers, "--shared-tier", "blocks=1000,bandwidth=10",
                       trace)
            self.assertIn("Shared tier: 1,000 blocks of 2,097,152 bytes", text)
            self.assertNotIn("outages", text)
        text = run("fleet", "--workers", "2", "--peer-memory", "blocks=1000", trace)
        self.assertIn("Host memory of all workers: 2,000 blocks", text)
        self.assertIn("of other workers", text)
        self.assertNotIn("Shared tier", run("fleet", "--workers", "2", trace))
        text = run("fleet", "--workers", "2", "--shared-tier", "blocks=1000,bandwidth=10", "--fail",
                   "tier:from=1,to=2", trace)
        self.assertIn("outages                          1:", text)

    def test_refusals(self):
        trace = self.write((0, 100, 2, 1))
        good = ("--shared-tier", "blocks=100,bandwidth=1")
        for args, said in (
                (("--shared-tier", ""), "--shared-tier"),
                (("--shared-tier", "blocks=10"), "needs bandwidth=VALUE (1e-06 to 1000000000)"),
                (("--shared-tier", "bandwidth=1"), "needs blocks=N or bytes=N, and not both"),
                (("--shared-tier", "blocks=1,bytes=9,bandwidth=1"), "and not both"),
                (("--shared-tier", "blocks=0,bandwidth=1"), "invalid value \"0\" for blocks"),
                (("--shared-tier", "blocks=1.5,bandwidth=1"), "a whole number from 1 to 1073741824"),
                (("--shared-tier", "bytes=-1,bandwidth=1"), "invalid value \"-1\" for bytes"),
                (("--shared-tier", "blocks=1,bandwidth=0"), "invalid value \"0\" for bandwidth"),
                (("--shared-tier", "blocks=1,bandwidth=1,client-bandwidth=0"),
                 "invalid value \"0\" for client-bandwidth"),
                (("--shared-tier", "blocks=1,bandwidth=1,latency=0.5"),
                 "invalid value \"0.5\" for latency of --shared-tier (expected 1 to 1000000000)"),
                (("--shared-tier", "blocks=1,bandwidth=1,size=1"), "has no field \"size\""),
                ((*good, "--cpu-blocks", "100"), "--shared-tier cannot be used with --cpu-blocks"),
                ((*good, "--no-enable-prefix-caching"), "--shared-tier needs prefix caching"),
                ((*good, "--pool", "prefill:1", "--pool", "decode:1"),
                 "--shared-tier cannot be used with --pool prefill"),
                ((*good, "--scale", "hpa:target=2,max=8"), "--scale cannot be used with --shared-tier"),
                (("--fail", "tier:from=1"), "--fail tier:from=1 needs --shared-tier"),
                ((*good, "--peer-memory", "blocks=9"), "--shared-tier cannot be used with --peer"),
                (("--peer-memory", "blocks=9", "--cpu-blocks", "9"), "--peer-memory cannot be used"),
                (("--peer-memory", "bandwidth=9"), "--peer-memory needs blocks=N or bytes=N"),
                (("--peer-memory", "blocks=9,host-bandwidth=0"),
                 "invalid value \"0\" for host-bandwidth of --peer-memory (expected 1e-06 to"),
                (("--peer-memory", "blocks=9,client-bandwidth=1"), "has no field"),
                (("--peer-memory", "blocks=9", "--fail", "tier:from=1"), "needs --shared-tier"),
                (("--peer-memory", "blocks=9", "--scale", "hpa:target=2,max=8"),
                 "--scale cannot be used with --peer-memory"),
                ((*good, "--fail", "tier:from=2,to=1"), "invalid value \"1\" for to of tier"),
                ((*good, "--fail", "tier:from=1,lose=2"), "invalid value \"2\" for lose of tier")):
            with self.subTest(args=args):
                self.assertIn(said, run("fleet", *args, trace, status=2))
        said = run("fleet", "--shared-tier", "bytes=1000,bandwidth=1", trace, status=1)
        self.assertIn("invalid value \"1000\" for bytes of --shared-tier (expected 2097152", said)


if __name__ == "__main__":
    QUIRE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
