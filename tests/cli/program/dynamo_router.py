#!/usr/bin/env python3
"""Dynamo's own router decides again what dynamo-kv decided, in the same states.

    PYTHON_WITH_DYNAMO tests/cli/program/dynamo_router.py HISTORY [--role serve|prefill|decode] [--all-costs]

HISTORY is what tests/cli/fleet/fleet_history.c writes. The workers' KV events go to Dynamo's selection service in
vLLM's format over ZeroMQ. Each request is booked on the worker that dynamo-kv chose, and reported as prefilled and
freed when it was in the fleet. Before it is booked, Dynamo is asked what it knows and which worker it takes. Dynamo's
options come from its DYN_ROUTER_... variables. A line of JSON says what was equal.

A block of HISTORY is a name, so its tokens are made of it. A block that is in no prompt is not published: no answer
depends on it. With --all-costs Dynamo is asked once more for each worker, with no other one allowed, since its log
has the cost of the worker that it takes and no other. These calls see the same state.

Pools have a router each; one is asked at a time. The one of decode workers has the options that Dynamo gives to it: no
credit, no prefill tokens, and blocks that are not shared. Dynamo's router of prefill workers does not count active
blocks; its selection service always does. So the worker that the
service takes is not compared for prefill workers, and decode blocks are subtracted from its costs.
"""

import argparse
import asyncio
import json
import os
import queue
import re
import struct
import sys
import tempfile
import threading

from fake_publisher import NIL, FakeSocket, batch, frame, number, text

BLOCK_SIZE = 16
REST = [0] * (BLOCK_SIZE - 2)
MARK = 1 << 63
DECODE = {"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT": "0", "DYN_ROUTER_TRACK_PREFILL_TOKENS": "false",
          "DYN_ROUTER_ASSUME_KV_REUSE": "false"}
COST = re.compile(r'Selected worker .*request_id="([^"]+)" worker_id=(\d+) .*logit=(\S+)')


def tokens_of(name):
    return [name & 0xffffffff, name >> 32, *REST]


def long_array(items):
    return b"\xdd" + struct.pack(">I", len(items)) + b"".join(items)


def stored(names, parent, tokens):
    return long_array([text("BlockStored"), long_array([*map(number, names)]), NIL if parent is None else number(parent),
                       long_array([*map(number, tokens)]), number(BLOCK_SIZE), NIL, text("GPU"), NIL, NIL, number(0)])


def removed(names):
    return long_array([text("BlockRemoved"), long_array([*map(number, names)]), text("GPU"), number(0)])


class Publisher(FakeSocket):
    """Of one worker: sends what it is given, in order, to its one subscriber."""

    kind = b"PUB"

    def __init__(self):
        self.messages = queue.Queue()
        self.has_subscriber = threading.Event()
        self.count = 0
        super().__init__()

    def talk(self, peer):
        self.receive_frame(peer)  # the subscription
        self.has_subscriber.set()
        while True:
            payload = self.messages.get()
            peer.sendall(frame(b"", True) + frame(struct.pack(">Q", self.count), True) + frame(payload, False))
            self.count += 1


class Workers:
    """The KV events of all workers, as they are told to Dynamo."""

    def __init__(self, service, parents, workers):
        self.service, self.parents = service, parents
        self.publishers = {w: Publisher() for w in workers}
        self.news = {w: [] for w in workers}  # (is stored, name), in order, not yet sent
        self.marks = dict.fromkeys(workers)
        self.num_marks = self.num_stored = self.num_removed = 0

    async def join(self):
        for index, it in self.publishers.items():
            await self.service.upsert_worker({
                "worker_id": index, "endpoint": f"http://worker-{index}", "block_size": BLOCK_SIZE,
                "max_num_batched_tokens": 8192, "kv_events_endpoint": it.endpoint})
        for it in self.publishers.values():
            await asyncio.to_thread(it.has_subscriber.wait)

    def note(self, worker, is_stored, names):
        if worker not in self.news:
            return
        known = [name for name in names if name in self.parents]
        self.news[worker] += [(is_stored, name) for name in known]
        self.num_stored += len(known) if is_stored else 0
        self.num_removed += 0 if is_stored else len(known)

    def events(self, worker):
        """A chain of stored blocks is one event, and so are removed blocks that follow each other."""
        runs = []
        for is_stored, name in self.news[worker]:
            last = runs[-1] if runs else None
            follows = last and last[0] == is_stored and (not is_stored or self.parents[name] == last[1][-1])
            if follows:
                last[1].append(name)
            else:
                runs.append((is_stored, [name]))
        self.news[worker] = []
        return [stored(names, self.parents[names[0]], [t for name in names for t in tokens_of(name)])
                if is_stored else removed(names) for is_stored, names in runs]

    async def tell(self):
        """Sends all news; returns when Dynamo has them. A block that nothing else has is the last of each message."""
        told = [w for w, news in self.news.items() if news]
        self.num_marks += 1
        mark = [0xffffffff, self.num_marks, *([7] * (BLOCK_SIZE - 2))]
        for w in told:
            old = [] if self.marks[w] is None else [removed([self.marks[w]])]
            self.marks[w] = MARK + self.num_marks
            events = [*self.events(w), *old, stored([self.marks[w]], None, mark)]
            self.publishers[w].messages.put(batch(*events))
        while told:
            said = await self.service.overlap_scores({"token_ids": mark})
            has = {it["worker_id"] for it in said["workers"] if it["device_blocks"] == 1}
            if has >= set(told):
                break
            await asyncio.sleep(0.0005)


async def answers(service, asked, all_costs):
    """What Dynamo knows and decides; the costs come from its log later."""
    prompt = [t for name in asked["blocks"] for t in tokens_of(name)]
    prompt += [1] * (asked["tokens"] - len(prompt))
    workers = [it["worker"] for it in asked["workers"]]
    here = f"{asked['request']}/"
    said = await service.overlap_scores({"token_ids": prompt})
    hits = {it["worker_id"]: it["device_blocks"] for it in said["workers"]}
    loads = {it["worker_id"]: it for it in await service.potential_loads({"token_ids": prompt})}
    best = await service.select({"token_ids": prompt, "selection_id": here + "any"})
    for w in workers if all_costs else [asked["worker"]]:
        await service.select({"token_ids": prompt, "selection_id": here + str(w), "allowed_worker_ids": [w]})
    await service.create_reservation({"selection_id": here + str(asked["worker"])})
    return {"asked": asked, "best": best["worker_id"], "hits": hits, "loads": loads}


def parents_of(asked):
    """Of each block that is in a prompt: the block before it."""
    parents = {}
    for line in asked:
        for parent, name in zip([None, *line["blocks"]], line["blocks"]):
            assert parents.setdefault(name, parent) == parent
    return parents


async def replay(history, role, all_costs):
    from dynamo._core import SelectionService
    asked = [line for line in history if line["kind"] == "asked" and line["role"] == role]
    service = SelectionService(indexer_threads=1)
    workers = Workers(service, parents_of(asked), sorted({it["worker"] for line in asked for it in line["workers"]}))
    await workers.join()
    decisions, booked = [], {}
    for line in history:
        kind, is_last = line["kind"], line["kind"] == ("first" if role == "prefill" else "done")
        if kind in ("stored", "removed"):
            workers.note(line["worker"], kind == "stored", line["blocks"])
        elif kind == "asked" and line["role"] == role:
            await workers.tell()
            decisions.append(await answers(service, line, all_costs))
            booked[line["request"]] = f"{line['request']}/{line['worker']}"
        elif kind != "asked" and line["request"] in booked:
            if kind == "first" and role == "serve":
                await service.prefill_complete(booked[line["request"]])
            if is_last:
                await service.free_reservation(booked.pop(line["request"]))
    service.shutdown()
    return decisions, {"workers": len(workers.news), "stored": workers.num_stored, "removed": workers.num_removed}


def is_near(a, b):
    return abs(a - b) <= 1e-9 * max(1, abs(a), abs(b))


def pairs_of(asked, mine, hits, load):
    """What a router knows of a worker and a prompt: (ours, Dynamo's) by name."""
    blocks, is_decode = len(asked["blocks"]), asked["role"] == "decode"
    prefill = mine["prefill_tokens"] + asked["tokens"] - min(asked["tokens"], mine["hit"] * BLOCK_SIZE)
    shared = 0 if is_decode else mine["active_hits"]
    return {"hits": (mine["hit"], hits),
            "prefill_tokens": (0 if is_decode else prefill, load["potential_prefill_tokens"]),
            "decode_blocks": (mine["active_blocks"] + blocks - shared, load["potential_decode_blocks"]),
            "in_flight": (mine["in_flight"], load["active_requests"])}


def compare(decisions, costs):
    """How many of what were equal, and the first decisions that were not."""
    count = dict.fromkeys(("decisions", "ties", "same_worker", "cheapest", "pairs", "hits", "prefill_tokens",
                           "decode_blocks", "in_flight", "costs", "equal_costs", "with_hits", "in_prefill"), 0)
    differ = []
    for it in decisions:
        asked, ours = it["asked"], {w["worker"]: w for w in it["asked"]["workers"]}
        is_prefill = asked["role"] == "prefill"
        least = min(w["cost"] for w in ours.values())
        cheapest = {w["worker"] for w in ours.values() if w["cost"] == least}
        assert asked["worker"] in cheapest or "DYN_ROUTER_TEMPERATURE" in os.environ
        count["decisions"] += 1
        count["ties"] += len(cheapest) > 1
        count["same_worker"] += it["best"] == asked["worker"]
        count["cheapest"] += it["best"] in cheapest
        wrong = {"best": it["best"], "cheapest": sorted(cheapest)} if not is_prefill and it["best"] not in cheapest else {}
        for w, mine in ours.items():
            count["pairs"] += 1
            count["with_hits"] += mine["hit"] > 0
            count["in_prefill"] += mine["prefill_tokens"] > 0
            for name, (a, b) in pairs_of(asked, mine, it["hits"][w], it["loads"][w]).items():
                count[name] += a == b
                if a != b:
                    wrong[f"{name} of {w}"] = (a, b)
        for kind, w, cost in costs.get(str(asked["request"]), []):
            if kind == "any" or "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY" not in os.environ:
                cost -= it["loads"][w]["potential_decode_blocks"] if is_prefill else 0
                count["costs"] += 1
                count["equal_costs"] += is_near(cost, ours[w]["cost"])
                if not is_near(cost, ours[w]["cost"]):
                    wrong[f"cost of {w}, {kind}"] = (ours[w]["cost"], cost)
        if wrong:
            differ.append({"request": asked["request"], **wrong})
    return count, differ


def read_costs(log):
    """Of Dynamo's log: {request: [(what was asked, worker, cost)]}."""
    costs = {}
    for found in COST.finditer(re.sub(r"\x1b\[[0-9;]*m", "", log)):
        request, kind = found[1].split("/")
        costs.setdefault(request, []).append((kind, int(found[2]), float(found[3])))
    return costs


def draws(decisions):
    """With a temperature: the sum of the probabilities, by our costs, of the workers that were taken, less what is
    expected, in standard deviations; ours and Dynamo's."""
    temperature = float(os.environ["DYN_ROUTER_TEMPERATURE"])
    sums = {"ours": 0.0, "theirs": 0.0}
    variance = 0.0
    for it in decisions:
        costs = {w["worker"]: w["cost"] for w in it["asked"]["workers"]}
        least, most = min(costs.values()), max(costs.values())
        weights = {w: 2.718281828459045 ** (-(c - least) / ((most - least) * temperature)) if most > least else 1
                   for w, c in costs.items()}
        p = {w: x / sum(weights.values()) for w, x in weights.items()}
        mean = sum(x * x for x in p.values())
        variance += sum(x * (x - mean) ** 2 for x in p.values())
        sums["ours"] += p[it["asked"]["worker"]] - mean
        sums["theirs"] += p[it["best"]] - mean
    return {who: total / variance ** 0.5 for who, total in sums.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history")
    parser.add_argument("--role", choices=("serve", "prefill", "decode"), default="serve")
    parser.add_argument("--all-costs", action="store_true")
    args = parser.parse_args()
    with open(args.history, encoding="utf-8") as file:
        history = [json.loads(line) for line in file]
    os.environ.update(DECODE if args.role == "decode" else {})
    os.environ["DYN_LOG"] = "error,dynamo_kv_router::scheduling::selector=info"
    with tempfile.TemporaryFile("w+") as log:  # Dynamo writes there from its own threads
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            decisions, told = asyncio.run(replay(history, args.role, args.all_costs))
        finally:
            os.dup2(stderr, 2)
            log.seek(0)
            said = log.read()
            sys.stderr.write("".join(line for line in said.splitlines(True) if "Selected worker" not in line))
    count, differ = compare(decisions, read_costs(said))
    drawn = {"draws": draws(decisions)} if "DYN_ROUTER_TEMPERATURE" in os.environ else {}
    print(json.dumps({**told, **count, **drawn, "differ": len(differ), "first": differ[:5]}))
    sys.stdout.flush()
    os._exit(0)  # publishers' threads wait for ever


if __name__ == "__main__":
    main()
