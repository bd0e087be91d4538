#!/usr/bin/env python3
"""TLS between `quire serve --peer-listen` and `quire replay --peer`, and to a Redis server, with
certificates that openssl makes: who is refused, and what the program says then.

    tests/cli/program/test_peers_tls.py QUIRE
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import serve_kit

QUIRE = ""
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "tiers-peer.md")
# On a slow GPU loads are expected to be faster, also with TLS.
REAL = ("--model", "llama-3.2-1b", "--gpu", "L4", "--num-gpu-blocks", "100", "--block-size", "16", "--cpu-blocks",
        "400", "--real-tiers", "--max-model-len", "1024")
PROMPTS = 6
PROMPT = 512  # tokens
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.secret = serve_kit.write_private(cls.path("secret"), "a secret of both processes\n")
        cls.trace = cls.write_trace("t.jsonl", [100 * p for p in range(PROMPTS)])
        for ca in ("ca", "other-ca"):
            cls.openssl("req", "-x509", *NEW_KEY, "-subj", f"/CN={ca}", "-days", "2", "-keyout",
                        cls.path(f"{ca}.key"), "-out", cls.path(f"{ca}.crt"))
        cls.certify("a", "IP:127.0.0.1")
        cls.certify("named", "DNS:engine-a")
        cls.certify("expired", "IP:127.0.0.1", days="-1")
        cls.certify("stranger", "IP:127.0.0.1", ca="other-ca")

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def write_trace(cls, name, times_ms):
        with open(cls.path(name), "w", encoding="utf-8") as file:
            for p, t in enumerate(times_ms):
                file.write(f'{{"timestamp": {t}, "input_length": {PROMPT}, "output_length": 4, '
                           f'"hash_ids": [{100 * p}]}}\n')
        return cls.path(name)

    @staticmethod
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True)

    @classmethod
    def certify(cls, name, names, ca="ca", days="2"):
        key, request, words = (cls.path(f"{name}.{end}") for end in ("key", "csr", "ext"))
        with open(words, "w", encoding="utf-8") as file:
            file.write(f"subjectAltName={names}\n")
        cls.openssl("req", *NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        cls.openssl("x509", "-req", "-in", request, "-CA", cls.path(f"{ca}.crt"), "-CAkey",
                    cls.path(f"{ca}.key"), "-CAcreateserial", "-days", days, "-extfile", words,
                    "-out", cls.path(f"{name}.crt"))

    def pair(self, name, kind="peer"):
        return (f"--{kind}-tls-cert-file", self.path(f"{name}.crt"), f"--{kind}-tls-key-file",
                self.path(f"{name}.key"))

    def offering(self, *args, port=0, trace=None):
        """A serve that has been through the trace and stays, and its address for peers."""
        it = serve_kit.Serving(QUIRE, "--speed", "max", "--hold", "--peer-listen",
                               f"127.0.0.1:{port}", "--peer-secret-file", self.secret, *REAL, *args,
                               trace or self.trace)
        self.addCleanup(it.close)
        address = re.fullmatch(r"peers +(127\.0\.0\.1:\d+)\n", it.process.stdout.readline())[1]
        serve_kit.until(it.has_ended, "the end of the trace")
        return it, address

    def client(self, address, *args):
        return (*REAL, "--peer", address, "--peer-secret-file", self.secret, *args, self.trace)

    def ca(self, name="ca", kind="peer"):
        return (f"--{kind}-tls", f"--{kind}-tls-ca-file", self.path(f"{name}.crt"))

    def expect_loads(self, address, *args):
        r = serve_kit.report(QUIRE, *self.client(address, *args))
        self.assertGreaterEqual(r["hits_by_tier"]["peer"], PROMPT - 16)
        self.assertEqual(r["tier_time"]["wrong_blocks"], 0)

    def expect_refused(self, address, *cases):
        """(words, option, ...) of each client; all at once, since each asks for two seconds."""
        def said(case):
            return serve_kit.run(QUIRE, "replay", *self.client(address, *case[1:]), status=1)
        with ThreadPoolExecutor(len(cases)) as pool:
            for case, text in zip(cases, pool.map(said, cases)):
                self.assertIn(f"quire replay: --peer {address}: ", text)
                self.assertIn(case[0], text)

    # -- peers

    def test_a_server_with_a_certificate(self):
        _, address = self.offering("--peer-tls", *self.pair("a"))
        self.expect_loads(address, *self.ca())
        self.expect_loads(address, "--peer-tls", "--peer-tls-trust-any")
        self.expect_refused(
            address, ("certificate", *self.ca("other-ca")), ("certificate", "--peer-tls"),
            ("mismatch", *self.ca(), "--peer-tls-server-name", "engine-b"),
            ("the peer expects TLS",))

    def test_names_and_dates(self):
        _, address = self.offering("--peer-tls", *self.pair("named"))
        self.expect_refused(address, ("IP address mismatch", *self.ca()))
        self.expect_loads(address, *self.ca(), "--peer-tls-server-name", "engine-a")
        _, address = self.offering("--peer-tls", *self.pair("expired"))
        self.expect_refused(address, ("certificate has expired", *self.ca()))

    def test_a_server_that_asks_for_certificates(self):
        _, address = self.offering(*self.ca(), *self.pair("a"))
        self.expect_loads(address, *self.ca(), *self.pair("named"))
        self.expect_refused(
            address, ("asks for a certificate: set --peer-tls-cert-file and --peer-tls-key-file",
                      *self.ca()), ("alert", *self.ca(), *self.pair("stranger")))

    def test_a_server_without_tls(self):
        _, address = self.offering()
        self.expect_refused(address, ("may not speak TLS", *self.ca()))

    def test_an_impostor_while_it_runs(self):
        """The peer is killed, and one with the secret but a certificate of another CA takes its port:
        the replay goes on, and computes."""
        trace = self.write_trace("two.jsonl", [0, 100, 200, 5000, 5100, 5200])
        it, address = self.offering("--peer-tls", *self.pair("a"), trace=trace)
        report = self.path("report.json")
        slow = serve_kit.Serving(QUIRE, "--speed", "1", "--json", report, *self.client(
            address, *self.ca())[:-1], trace)
        self.addCleanup(slow.close)
        loaded = 'quire_tier_loaded_blocks_total{tier="peer",medium="PEER"}'
        serve_kit.until(lambda: slow.metrics().get(loaded, 0) > 0, "loads")
        it.close()
        self.offering("--peer-tls", *self.pair("stranger"), port=int(address.split(":")[1]),
                      trace=trace)
        self.assertEqual(slow.process.wait(serve_kit.WAIT_S), 0, slow.said())
        with open(report, encoding="utf-8") as file:
            r = serve_kit.json.load(file)
        self.assertGreaterEqual(r["hits_by_tier"]["computed"], 3 * PROMPT)
        self.assertGreater(r["hits_by_tier"]["peer"], 0)
        self.assertEqual(r["tier_time"]["wrong_blocks"], 0)

    def test_the_page(self):
        """The commands of docs/tiers-peer.md."""
        with open(PAGE, encoding="utf-8") as file:
            section = file.read().split("### With TLS\n")[1]
        make, use = re.findall(r"```sh\n(.*?)```", section, re.S)[:2]
        folder = self.path("page")
        os.mkdir(folder)
        shutil.copy(self.trace, os.path.join(folder, "trace.jsonl"))
        shutil.copy(self.secret, os.path.join(folder, "peer.secret"))
        subprocess.run(["sh", "-e", "-c", make], cwd=folder, check=True, capture_output=True)
        serve, replay = use.replace("\\\n", " ").strip().splitlines()
        port = str(free_port())
        more = ["--listen", "127.0.0.1:0", "--model", "llama-3.2-1b"]
        serving = subprocess.Popen([QUIRE, *serve.replace("7400", port).split()[1:], *more],
                                   cwd=folder, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.addCleanup(serving.stdout.close)
        self.addCleanup(serving.wait)
        self.addCleanup(serving.kill)
        for line in serving.stdout:
            if "The trace has ended" in line:
                break
        done = subprocess.run([QUIRE, *replay.replace("7400", port).split()[1:], *more[2:], "--json",
                               "-", "--quiet"], cwd=folder, text=True, capture_output=True,
                              timeout=serve_kit.WAIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(serve_kit.json.loads(done.stdout)["hits_by_tier"]["peer"], 0)

    # -- Redis

    @unittest.skipUnless(shutil.which("redis-server"), "redis-server is missing")
    def test_redis(self):
        port = free_port()
        redis = subprocess.Popen(
            ["redis-server", "--port", "0", "--tls-port", str(port), "--save", "", "--dir",
             self.folder.name, "--tls-cert-file", self.path("a.crt"), "--tls-key-file",
             self.path("a.key"), "--tls-ca-cert-file", self.path("ca.crt")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(redis.wait)
        self.addCleanup(redis.kill)

        def answers():
            with socket.socket() as s:
                return redis.poll() is not None or s.connect_ex(("127.0.0.1", port)) == 0
        serve_kit.until(answers, "the server")
        if redis.poll() is not None:
            self.skipTest("redis-server was built without TLS")
        address = f"127.0.0.1:{port}"

        def args(*more):
            return (*REAL, "--redis", address, "--admit", "all", *more, self.trace)
        mine = self.pair("named", "redis")
        first = serve_kit.report(QUIRE, *args(*self.ca(kind="redis"), *mine))
        self.assertGreater(first["tiers"][1]["in_blocks"], 0)
        again = serve_kit.report(QUIRE, *args(*self.ca(kind="redis"), *mine))
        self.assertGreater(again["hits_by_tier"]["redis"], 0)
        for more, words in ((self.ca(kind="redis"), "--redis-tls-cert-file"),
                            ((*self.ca("other-ca", "redis"), *mine), "certificate")):
            said = serve_kit.run(QUIRE, "replay", *args(*more), status=1)
            self.assertIn(f"--redis {address}: ", said)
            self.assertIn(words, said)

    # -- sentences

    def test_options(self):
        there = ("--peer", "127.0.0.1:1", "--peer-secret-file", self.secret)
        crt, key = self.path("a.crt"), self.path("a.key")
        for args, words in (
                ((*there, "--peer-tls-ca-file", crt), "--peer-tls-ca-file needs --peer-tls"),
                ((*there, "--peer-tls-trust-any"), "--peer-tls-trust-any needs --peer-tls"),
                ((*there, "--peer-tls", "--peer-tls-cert-file", crt),
                 f"--peer-tls-cert-file {crt} needs --peer-tls-key-file FILE"),
                ((*there, "--peer-tls", "--peer-tls-key-file", key),
                 f"--peer-tls-key-file {key} needs --peer-tls-cert-file FILE"),
                ((*there, "--peer-tls", "--peer-tls-ca-file", "/none.crt"),
                 "--peer-tls-ca-file /none.crt: No such file or directory"),
                ((*there, "--peer-tls", "--peer-tls-ca-file", os.devnull),
                 f"--peer-tls-ca-file {os.devnull}: the file is empty"),
                ((*there, "--peer-tls", "--peer-tls-cert-file", crt, "--peer-tls-key-file",
                  self.folder.name), f"--peer-tls-key-file {self.folder.name}: Is a directory"),
                ((*there, *self.ca(), "--peer-tls-trust-any"), "give one of them"),
                ((*there, "--peer-tls", "--peer-tls-server-name", "x", "--peer-tls-trust-any"),
                 "--peer-tls-server-name x"),
                (("--redis", "127.0.0.1:1", "--peer-tls"), "--peer-tls needs --peer HOST:PORT"),
                (("--redis", "127.0.0.1:1", "--redis-tls-ca-file", crt), "--redis-tls-ca-file needs --redis-tls"),
                ((*there, "--redis-tls"), "--redis-tls needs --real-tiers and --redis")):
            self.assertIn(words, serve_kit.run(QUIRE, "replay", *REAL, *args, self.trace, status=2))
        for args, words in (
                ((*there, "--peer-tls", "--peer-tls-ca-file", self.trace),
                 f"--peer-tls-ca-file: cannot read {self.trace}, or it is not PEM"),
                ((*there, "--peer-tls", "--peer-tls-cert-file", crt, "--peer-tls-key-file",
                  self.path("named.key")), f"--peer-tls-cert-file {crt} and --peer-tls-key-file"),
                (("--redis", "192.0.2.1:1"), "add --redis-tls, or --redis-trust-network"),
                (("--peer", "192.0.2.1:1", "--peer-secret-file", self.secret), "add --peer-tls, or")):
            self.assertIn(words, serve_kit.run(QUIRE, "replay", *REAL, *args, self.trace, status=1))

    def test_options_of_serve(self):
        def refused(*args):
            return serve_kit.run(QUIRE, "serve", "--listen", "127.0.0.1:0", *REAL, "--peer-listen",
                                 "127.0.0.1:0", "--peer-secret-file", self.secret, *args, self.trace,
                                 status=2)
        self.assertIn("--peer-tls: a server needs --peer-tls-cert-file FILE and --peer-tls-key-file "
                      "FILE", refused("--peer-tls"))
        self.assertIn("--peer-tls-server-name x: only a client checks",
                      refused("--peer-tls", *self.pair("a"), "--peer-tls-server-name", "x"))
        self.assertIn("--peer-tls-trust-any: only a client checks",
                      refused("--peer-tls", *self.pair("a"), "--peer-tls-trust-any"))

    def test_help_and_completion(self):
        for command in ("replay", "serve", "sweep"):
            said = serve_kit.run(QUIRE, command, "--help")
            for name in ("", "-ca-file", "-cert-file", "-key-file", "-server-name", "-trust-any"):
                for kind in ("peer", "redis"):
                    self.assertRegex(said, rf"--(\[no-\])?{kind}-tls{name}\b")
        self.assertIn("--peer-tls-ca-file", serve_kit.run(QUIRE, "completion", "bash"))


def is_built():
    """With tiers, with serve, and with TLS."""
    if "--peer-tls" not in serve_kit.run(QUIRE, "serve", "--help"):
        return False
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(b"a secret of both processes\n")
        secret.flush()
        said = subprocess.run([QUIRE, "replay", *REAL, "--peer", "127.0.0.1:1", "--peer-secret-file",
                               secret.name, "--peer-tls", "-"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False).stderr
    return "built without" not in said


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv[1])
    if not shutil.which("openssl") or not is_built():
        print("SKIPPED: no openssl, or this quire was built without tiers, serve or TLS")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
