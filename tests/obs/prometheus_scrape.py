#!/usr/bin/env python3
"""A real Prometheus scrapes `quire serve`, and knows at the end what the report says.

    prometheus_scrape.py QUIRE BOARD      the program, and the Grafana board whose queries are asked

The replay runs at twice the speed of time and stays. Prometheus scrapes it every second, twice: as
OpenMetrics, and without asking for that. Asked through its API, it must have every sample that
Quire serves, the numbers of the run's report by Quire's names and by vLLM's, and an answer to every
query of the board. Skipped (77) without prometheus. Some ten seconds.
"""
import http.server
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

SCRAPE_S = 1
DEADLINE_S = 120
REQUESTS = 300


def wait_for(what, ask):
    """Asks until there is an answer."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            answer = ask()
        except OSError:
            answer = None
        if answer:
            return answer
        time.sleep(0.2)
    sys.exit(f"waited {DEADLINE_S} s for {what}")


def free_port():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), None) as server:
        return server.server_address[1]


class Relay(http.server.ThreadingHTTPServer):
    """Passes /metrics on, with the Accept header or without, and notes what came back."""

    def __init__(self, origin, has_accept):
        super().__init__(("127.0.0.1", 0), Handler)
        self.origin, self.has_accept, self.kinds = origin, has_accept, set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def target(self):
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        request = urllib.request.Request(self.server.origin + "/metrics")
        if self.server.has_accept and "Accept" in self.headers:
            request.add_header("Accept", self.headers["Accept"])
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                body = response.read()
                kind = response.headers["Content-Type"]
        except OSError:
            self.send_error(502)
            return
        self.server.kinds.add(kind.split(";")[0])
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


class Serve:
    """`quire serve` over a workload that it made up itself."""

    def __init__(self, quire, folder):
        trace = folder / "trace.jsonl"
        subprocess.run([quire, "generate", "chat", "--requests", str(REQUESTS), "--rate", "40", "--out",
                        trace], check=True, capture_output=True)
        self.report_path = folder / "report.json"
        self.process = subprocess.Popen(
            [quire, "serve", "--speed", "2", "--hold", "--listen", "127.0.0.1:0", "--json",
             self.report_path, "--num-gpu-blocks", "2000", trace],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = []
        threading.Thread(target=self.listen, daemon=True).start()
        self.url = wait_for("the address", self.find_url)

    def listen(self):
        for line in self.process.stdout:
            self.said.append(line)

    def check(self):
        if self.process.poll() is not None:
            sys.exit(f"quire serve ended with {self.process.returncode}:\n" + "".join(self.said))

    def metrics(self):
        self.check()
        return parse_metrics(self.url)

    def find_url(self):
        self.check()
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(self.said))
        return found and found[0]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


class Prometheus:
    def __init__(self, folder, targets):
        jobs = [{"job_name": name, "scrape_interval": f"{SCRAPE_S}s",
                 "static_configs": [{"targets": [target]}]} for name, target in targets.items()]
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({"scrape_configs": jobs}))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
        wait_for("prometheus", lambda: self.get("/-/ready"))

    def get(self, path, **query):
        url = self.url + path + ("?" + urllib.parse.urlencode(query) if query else "")
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.read()

    def ask(self, query):
        answer = json.loads(self.get("/api/v1/query", query=query))
        assert answer["status"] == "success", answer
        return answer["data"]["result"]

    def value(self, query):
        result = self.ask(query)
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def check_targets(self):
        for target in json.loads(self.get("/api/v1/targets"))["data"]["activeTargets"]:
            assert target["health"] == "up" and not target["lastError"], target

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


def board_queries(path):
    for panel in json.loads(pathlib.Path(path).read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "10s")
            yield panel["title"], query.replace("$model", ".*").replace("$engine", ".*")


def parse_metrics(url):
    """Quire's own text, sample by sample."""
    with urllib.request.urlopen(url + "/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")


def compare_all(prometheus, served, job):
    """Every sample that Quire serves, as Prometheus has it."""
    kept = {}
    for entry in prometheus.ask(f'{{job="{job}"}}'):
        labels = {k: v for k, v in entry["metric"].items() if k not in ("job", "instance")}
        kept[(labels.pop("__name__"), frozenset(labels.items()))] = float(entry["value"][1])
    for series, value in served.items():
        name, labels = series[:-1].split("{", 1)
        key = (name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels)))
        assert key in kept, f"{job}: Prometheus does not have {series}"
        assert kept[key] == float(value), f"{job}: {series}: {kept[key]}, served {value}"
    return len(served)


def total(served, name):
    return sum(float(v) for k, v in served.items() if k.startswith(name + "{"))


def compare_report(prometheus, report):
    """What the run's own report says; each by both names where there are two."""
    pairs = (("requests", "quire_requests_finished_total", "vllm:request_success_total"),
             ("prompt_tokens", "quire_prompt_tokens_total", "vllm:prompt_tokens_total"),
             ("output_tokens", "quire_generation_tokens_total", "vllm:generation_tokens_total"),
             ("hit_tokens", "quire_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"),
             ("preemptions", "quire_preemptions_total", "vllm:num_preemptions_total"),
             ("requests", "quire_requests_added_total"))
    for key, *names in pairs:
        for name in names:
            kept = prometheus.value(f'sum({name}{{job="open"}})')
            assert kept == report[key], f"{name} is {kept}, the report says {report[key]}"
    assert report["preemptions"] > 0 and report["hit_tokens"] > 0
    steps = prometheus.value('quire_steps_total{job="open"}')
    assert steps >= report["steps"]  # empty ones at the end are not the replay's
    for state in ("empty", "cached", "active"):
        kept = prometheus.value(f'quire_blocks{{job="open",state="{state}"}}')
        assert kept == report["blocks"][state], f"{state} blocks: {kept}"
    return sum(len(names) for _, *names in pairs) + 3


def run(serve, prometheus, board):
    finished = "quire_requests_finished_total"
    wait_for("the end of the replay",
             lambda: total(serve.metrics(), finished) == REQUESTS)
    wait_for("the last scrapes",
             lambda: [float(r["value"][1]) for r in prometheus.ask(f"sum by (job) ({finished})")] ==
             [REQUESTS, REQUESTS])
    time.sleep(2 * SCRAPE_S)  # for what changed after the last request
    prometheus.check_targets()
    served = serve.metrics()
    num_samples = sum(compare_all(prometheus, served, job) for job in ("open", "plain"))
    text = wait_for("the report",
                    lambda: serve.report_path.exists() and serve.report_path.read_text())
    num_reported = compare_report(prometheus, json.loads(text))
    queries = list(board_queries(board))
    for _, query in queries:
        prometheus.ask(query)
    print(f"prometheus: {num_samples} samples as served, {num_reported} as reported, {len(queries)} "
          "queries of the board answered")


def main():
    quire, board = sys.argv[1:]
    if not shutil.which("prometheus"):
        print("skipped: prometheus is not there")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        serve = Serve(quire, folder)
        jobs = {"open": Relay(serve.url, True), "plain": Relay(serve.url, False)}
        prometheus = Prometheus(folder, {job: relay.target() for job, relay in jobs.items()})
        try:
            run(serve, prometheus, board)
        finally:
            prometheus.stop()
            serve.stop()
        assert jobs["open"].kinds == {"application/openmetrics-text"}, jobs["open"].kinds
        assert jobs["plain"].kinds == {"text/plain"}, jobs["plain"].kinds


main()
