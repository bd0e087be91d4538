#!/usr/bin/env python3
"""decisions.py - what each routing policy must decide, by the formulas of docs/routers.md.

    decisions.py            writes decisions.txt
    decisions.py --check    compares with the committed file

formulas.py is a second writing of the formulas: test_policies.c gives the same workers and hits to
the C functions. A case expects a set of workers, because equal ones are drawn at random, and the score.
Cases are fixed ones at the edges of the parameters, and random ones with small numbers, so that
equal scores are frequent. A random case with scores that are nearly but not exactly equal is drawn
again.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from formulas import M64, POLICIES, Near, nblocks  # noqa: E402

CASES = 24
REQUEST = dict(prompt=160, bs=16, session=0, history=0, priority=0, arrival=0.0, time=10.0, shared=0,
               router=0, routers=1)
WORKER = dict(ready=1, inflight=0, prefill=0, tokens=0, active=0, ahit=0, waiting=0, running=0,
              qtok=0, ctx=0, kv=0.0, blocks=100, batched=8192, known=0, gpu=0, host=0, disk=0,
              leading=-1, cap=1.0)


# ---- cases --------------------------------------------------------------------------------

# Options that random cases draw from, by policy.
OPTIONS = {
    "least-loaded": [{}, {"by": "tokens"}, {"by": "prefill-tokens"}],
    "dynamo-kv": [{}, {}, {"overlap-score-credit": 0}, {"overlap-score-credit-decay": 1},
                  {"prefill-load-scale": 2}, {"decode-active-request-weight": 4},
                  {"host-cache-hit-weight": 0, "disk-cache-hit-weight": 1}, {"shared-cache-multiplier": 0},
                  {"router-temperature": 1}, {"router-queue-threshold": 0},
                  {"router-queue-threshold": 0.03125}, {"conditional-disagg": "prefill-load"}],
    "llm-d": [{}, {}, {"prefix": 0}, {"prefix": 0, "queue": 0, "kv": 0, "running": 1},
              {"prefix": 1, "queue": 1, "kv": 1}, {"load-aware": 4, "queue-threshold": 2},
              {"active-request": 8, "idle-threshold": 2, "max-busy-score": 0.5},
              {"token-load": 8, "token-threshold": 2048}, {"no-hit-lru": 8}, {"latency": 8},
              {"latency": 8, "slo-ttft-ms": 32, "slo-tpot-ms": 16},
              {"latency": 8, "slo-ttft-ms": 64, "slo-tpot-ms": 32, "headroom": "most"},
              {"picker": "random"}, {"picker": "weighted-random", "kv": 0},
              {"affinity-threshold": 0.5, "exploration": 0},
              {"affinity-threshold": 0.5, "exploration": 0, "max-ttft-penalty-ms": 8},
              {"slo-headroom-tier": "on", "exploration": 0, "slo-ttft-ms": 32, "slo-tpot-ms": 16}],
    "sgl-cache-aware": [{}, {"balance-abs-threshold": 2}, {"balance-abs-threshold": 1, "keep-affinity": "on"},
                        {"cache-threshold": 0.5}, {"balance-abs-threshold": 0, "balance-rel-threshold": 2}],
    "vllm-dp": [{}, {"waiting-weight": 1}, {"waiting-weight": 0}],
    "smetric": [{}, {"attention-crossover-tokens": 64}, {"prefill-rate": 80, "hit-ratio": 0.25},
                {"prefill-rate": 80, "slack": 4}, {"prefill-rate": 1, "hit-ratio": 0}],
    "production-loadaware": [{}, {"beta": 0}, {"beta": 0.5}],
    "aibrix-prefix": [{}, {"imbalance-abs-count": 2}, {"standard-deviation-factor": 0},
                      {"standard-deviation-factor": 2}],
    "conductor": [{}, {"prefill-exponent": 1}, {"kv-pressure": 0.5, "kv-penalty": 4}],
    "preble": [{}, {"prefix-threshold": 0.25}, {"prefix-threshold": 1}],
    "ray-prefix": [{}, {"imbalanced-threshold": 2}, {"match-rate-threshold": 0.5}],
}
OPTIONS["llm-d-precise"] = OPTIONS["llm-d"] + [{"host-weight": 0}, {"prefix-score": "match-rate"}]
ROLES = {"dynamo-kv": ["serve", "serve", "prefill", "decode"], "smetric": ["serve", "serve", "prefill", "decode"],
         "aibrix-prefix": ["serve", "serve", "prefill", "decode"], "conductor": ["serve", "serve", "decode"],
         "oracle": ["serve", "serve", "decode"]}


def W(**fields):
    return {**WORKER, **fields}


def Q(**fields):
    return {**REQUEST, **fields}


# (policy, options, role, request, workers): one for each edge.
EDGES = [
    ("least-loaded", {}, "serve", Q(), [W(inflight=4), W(inflight=8, cap=2.0)]),          # equal by speed
    ("least-loaded", {}, "serve", Q(), [W(inflight=0, ready=0), W(inflight=9)]),          # not ready
    ("power-of-two", {}, "serve", Q(), [W(inflight=7)]),                                  # no second one
    ("power-of-two", {}, "serve", Q(), [W(inflight=7), W(inflight=8)]),
    ("session", {}, "serve", Q(session=1), [W(inflight=99), W(), W(), W()]),
    ("session", {}, "serve", Q(session=M64), [W(), W(), W(), W()]),
    # dynamo-kv: credit of a whole prompt leaves no prefill; below zero stays zero
    ("dynamo-kv", {}, "serve", Q(), [W(gpu=10), W()]),
    ("dynamo-kv", {"overlap-score-credit": 2}, "serve", Q(), [W(gpu=10), W(gpu=5), W(active=1)]),
    ("dynamo-kv", {}, "serve", Q(prompt=15), [W(active=1), W()]),                         # no full block
    ("dynamo-kv", {}, "serve", Q(shared=10), [W(gpu=4), W(gpu=10), W()]),
    ("dynamo-kv", {"overlap-score-credit-decay": 1}, "serve", Q(), [W(gpu=8, prefill=320), W(gpu=4)]),
    ("dynamo-kv", {"router-queue-threshold": 0}, "serve", Q(), [W(prefill=1), W(prefill=1)]),
    ("dynamo-kv", {"router-queue-threshold": 0}, "serve", Q(), [W(prefill=1), W(prefill=0)]),
    ("dynamo-kv", {"router-queue-threshold": 0.5}, "serve", Q(), [W(prefill=4096), W(prefill=9000)]),
    ("dynamo-kv", {"router-queue-threshold": 0.5}, "serve", Q(), [W(prefill=4097), W(prefill=9000)]),
    ("dynamo-kv", {"router-queue-threshold": 0}, "decode", Q(), [W(prefill=1), W(prefill=1, active=1)]),
    ("dynamo-kv", {}, "serve", Q(), [W(active=10, ahit=10), W()]),                        # all active already
    ("dynamo-kv", {}, "decode", Q(), [W(active=10, ahit=10), W(active=1)]),               # requests share nothing
    ("dynamo-kv", {}, "decode", Q(), [W(gpu=10, active=2), W(active=1)]),                 # and hits do not count
    ("dynamo-kv", {"conditional-disagg": "isl-bounding"}, "decode", Q(), [W(gpu=10, active=2), W(active=1)]),
    ("dynamo-kv", {"conditional-disagg": "isl-bounding", "overlap-score-credit": 2, "overlap-score-credit-decay": 9,
                   "decode-active-request-weight": 4}, "decode", Q(),
     [W(gpu=10, active=2, prefill=160, inflight=2), W(active=1), W(active=3, gpu=9, host=1, inflight=1)]),
    ("dynamo-kv", {"conditional-disagg": "isl-bounding", "overlap-score-credit": 0}, "decode", Q(),
     [W(host=10, active=2), W(active=1)]),
    ("dynamo-kv", {}, "prefill", Q(), [W(active=1), W(active=90, prefill=0), W(prefill=16)]),  # no decode blocks
    # llm-d
    ("llm-d", {}, "serve", Q(prompt=15), [W(waiting=1), W(waiting=1, kv=0.5)]),
    ("llm-d", {}, "serve", Q(), [W(waiting=3), W(waiting=3)]),
    ("llm-d", {"affinity-threshold": 1, "exploration": 0}, "serve", Q(), [W(gpu=10, kv=0.75), W(gpu=9)]),
    ("llm-d", {"active-request": 8, "prefix": 0}, "serve", Q(), [W(inflight=0), W(inflight=8)]),
    ("llm-d-precise", {}, "serve", Q(), [W(gpu=4), W(gpu=4)]),                            # all equal: 1
    ("llm-d-precise", {}, "serve", Q(), [W(gpu=8), W(gpu=4, host=5), W()]),
    # sgl: the thresholds themselves are balanced, and no hit
    ("sgl-cache-aware", {}, "serve", Q(), [W(inflight=64, gpu=5), W(inflight=0)]),
    ("sgl-cache-aware", {}, "serve", Q(), [W(inflight=65, gpu=5), W(inflight=0)]),
    ("sgl-cache-aware", {}, "serve", Q(), [W(inflight=192, gpu=5), W(inflight=128)]),
    ("sgl-cache-aware", {}, "serve", Q(), [W(inflight=240, gpu=5), W(inflight=160), W(inflight=161)]),
    ("sgl-cache-aware", {"cache-threshold": 0.5}, "serve", Q(), [W(inflight=3, gpu=5), W(inflight=0)]),
    ("sgl-cache-aware", {"cache-threshold": 0.5}, "serve", Q(), [W(inflight=3, gpu=6), W(inflight=0)]),
    ("sgl-cache-aware", {"balance-abs-threshold": 4, "keep-affinity": "on"}, "serve", Q(),
     [W(inflight=9, gpu=9), W(inflight=4, gpu=6), W()]),
    ("lmetric", {}, "serve", Q(), [W(gpu=10, inflight=50), W(gpu=10, inflight=40)]),      # both cost 0
    ("lmetric", {}, "serve", Q(), [W(inflight=1, gpu=5), W(inflight=0)]),                 # 80 x 2 = 160 x 1
    ("lmetric", {}, "serve", Q(), [W(inflight=2), W(inflight=2)]),
    ("vllm-kv-aware", {}, "serve", Q(), [W(gpu=1, inflight=999), W()]),
    ("vllm-kv-aware", {}, "serve", Q(), [W(gpu=2), W(gpu=2), W(gpu=1)]),                  # the last one
    ("vllm-kv-aware", {}, "serve", Q(), [W(inflight=2), W(inflight=1), W(inflight=1)]),   # the first one
    ("vllm-dp", {}, "serve", Q(), [W(waiting=1), W(running=4), W(running=5)]),
    ("vllm-dp", {}, "serve", Q(router=1, routers=2), [W(), W(), W(), W()]),
    ("vllm-dp", {}, "serve", Q(router=2, routers=3), [W(), W(), W(), W()]),
    # smetric: the ratio itself is too short; no worker meets; decode
    ("smetric", {}, "serve", Q(history=160), [W(gpu=5, inflight=3), W(inflight=1)]),
    ("smetric", {}, "serve", Q(history=160), [W(gpu=6, inflight=3), W(inflight=1)]),
    ("smetric", {}, "serve", Q(history=0), [W(gpu=6, inflight=3), W(inflight=1)]),
    ("smetric", {"prefill-rate": 64}, "serve", Q(history=160), [W(gpu=6, inflight=3), W(inflight=1)]),
    ("smetric", {"prefill-rate": 32}, "prefill", Q(history=160), [W(gpu=5), W(gpu=6), W()]),
    ("production-loadaware", {}, "serve", Q(), [W(gpu=10, inflight=2), W(inflight=0)]),
    ("production-loadaware", {}, "serve", Q(), [W(gpu=10, inflight=1), W(inflight=1)]),
    # aibrix: a spread of 8 is balanced, 9 is not; the limit itself counts
    ("aibrix-prefix", {}, "serve", Q(), [W(gpu=5, inflight=8), W(inflight=0), W(inflight=8)]),
    ("aibrix-prefix", {}, "serve", Q(), [W(gpu=5, inflight=9), W(inflight=0), W(gpu=1, inflight=0)]),
    ("aibrix-prefix", {}, "serve", Q(), [W(gpu=5, inflight=2), W(inflight=0)]),
    ("aibrix-prefix", {"standard-deviation-factor": 0}, "serve", Q(), [W(gpu=5, inflight=2), W(inflight=0)]),
    ("aibrix-prefix", {}, "serve", Q(prompt=15), [W(inflight=1), W()]),
    ("aibrix-prefix", {}, "decode", Q(), [W(kv=1.0, running=4, ctx=64), W(kv=0.5, running=4, ctx=64)]),
    ("conductor", {}, "serve", Q(), [W(gpu=10), W()]),
    ("conductor", {}, "decode", Q(), [W(kv=0.90625, running=4), W(kv=0.875, running=4)]),
    ("conductor", {}, "decode", Q(), [W(kv=0.9), W(kv=0.91)]),
    ("preble", {}, "serve", Q(), [W(), W(gpu=5), W()]),                                   # half is explored
    ("preble", {}, "serve", Q(), [W(), W(gpu=6), W(gpu=6)]),
    ("ray-prefix", {}, "serve", Q(), [W(inflight=10, gpu=1, known=5), W(), W(known=2)]),  # 16/160 is enough
    ("ray-prefix", {}, "serve", Q(), [W(inflight=11, gpu=1), W(), W()]),                  # imbalanced
    ("ray-prefix", {"match-rate-threshold": 0.125}, "serve", Q(), [W(gpu=1, known=5), W(known=1), W(known=1)]),
    ("oracle", {}, "serve", Q(), [W(gpu=10, qtok=160), W()]),
    ("oracle", {}, "serve", Q(), [W(gpu=10, qtok=80), W()]),
]


def draw(rng, policy):
    role = rng.choice(ROLES.get(policy, ["serve"]))
    q = Q(prompt=rng.choice([1, 15, 16, 100, 160, 256]), session=rng.choice([0, 0, 3, 77]),
          history=rng.choice([0, 64, 128]), shared=0)
    if policy == "vllm-dp":
        q["routers"] = rng.choice([1, 2, 3])
        q["router"] = rng.randrange(q["routers"])
    blocks = nblocks(q)
    if policy == "dynamo-kv":
        q["shared"] = rng.choice([0, blocks])
    ws = []
    for _ in range(rng.choice([1, 2, 3, 4, 5])):
        gpu = rng.choice([0, 0, blocks // 4, blocks // 2, blocks])
        host = rng.choice([0, 0, (blocks - gpu) // 2])
        disk = rng.choice([0, 0, blocks - gpu - host])
        ahit = rng.choice([0, gpu])
        ws.append(W(ready=rng.choice([1, 1, 1, 1, 1, 0]), inflight=rng.choice([0, 1, 2, 3, 8, 12]),
                    prefill=rng.choice([0, 160, 256, 512]), tokens=rng.choice([0, 512, 1024, 4096]),
                    active=ahit + rng.choice([0, 2, 8]), ahit=ahit, waiting=rng.choice([0, 0, 1, 2, 4]),
                    running=rng.choice([0, 1, 2, 8]), qtok=rng.choice([0, 160, 512]),
                    ctx=rng.choice([0, 1024, 4096]), kv=rng.choice([0.0, 0.25, 0.5, 0.9375]),
                    known=rng.choice([0, 5, 9]), gpu=gpu, host=host, disk=disk,
                    cap=rng.choice([1.0, 1.0, 2.0])))
    ws[0]["ready"] = 1
    return role, q, ws


def answer(policy, options, role, q, workers):
    for w in workers:
        if w["leading"] < 0:
            w["leading"] = w["gpu"]
    ready = {i: w for i, w in enumerate(workers) if w["ready"]}
    ids, score = POLICIES[policy](q, ready, options, role)
    return ids, score


def text_of(policy, options, role, q, workers, ids, score):
    spec = policy + (":" + ",".join(f"{k}={v}" for k, v in options.items()) if options else "")
    lines = [" ".join(["case", spec, role] + [f"{k}={v}" for k, v in q.items() if v != REQUEST[k]])]
    for w in workers:
        lines.append(" ".join(["worker"] + [f"{k}={v}" for k, v in w.items()
                                            if v != WORKER[k] and not (k == "leading" and v == w["gpu"])]))
    if ids is None:
        lines.append("waits")
    else:
        lines.append("expect " + " ".join(str(i) for i in sorted(ids))
                     + ("" if score is None else f" score {score:.12g}"))
    return "\n".join(lines)


# Policies whose score is that of the choice; the others decide by more than one number.
SCORED = {"least-loaded", "dynamo-kv", "llm-d", "llm-d-precise", "lmetric", "vllm-dp", "production-loadaware",
          "conductor", "oracle", "preble"}


def all_cases():
    for policy in POLICIES:
        rng = random.Random(policy)
        edges = [e for e in EDGES if e[0] == policy]
        done = 0
        while done < max(CASES, len(edges) + 8):
            if done < len(edges):
                _, options, role, q, workers = edges[done]
            else:
                options = rng.choice(OPTIONS.get(policy, [{}]))
                role, q, workers = draw(rng, policy)
            try:
                ids, score = answer(policy, options, role, q, workers)
            except Near:
                assert done >= len(edges), edges[done]
                continue
            done += 1
            yield text_of(policy, options, role, q, workers, ids, score if policy in SCORED else None)


def main():
    path = Path(__file__).with_name("decisions.txt")
    text = "# Written by decisions.py: do not edit.\n\n" + "\n\n".join(all_cases()) + "\n"
    if "--check" not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit("decisions.txt is not what decisions.py writes")
    print(text.count("\ncase "), "cases")


if __name__ == "__main__":
    main()
