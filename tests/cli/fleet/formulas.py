"""formulas.py - what each routing policy decides: (request, {id: worker}, options, role) -> (workers,
score).

A plain second writing of the formulas of docs/routers.md, for decisions.py. Workers: a set, because
equal ones are drawn at random; None: the request waits. Score: of the choice, where it has one.
"""

import math

M64 = (1 << 64) - 1


# ---- the time model of test_policies.c ---------------------------------------------

def prefill_s(cached, new):
    return new * 1e-4 + cached * new * 1e-8


def decode_s(running, context):
    return 0.01 + running * 1e-3 + context * 1e-6


# ---- helpers --------------------------------------------------------------------------

def nblocks(q):
    return q["prompt"] // q["bs"]


def hit_blocks(w):
    return w["gpu"] + w["host"] + w["disk"]


def hit_tokens(q, w):
    return min(hit_blocks(w) * q["bs"], q["prompt"])


def best(scores, sign):
    """Workers with the best score, and the score."""
    top = max(sign * s for s in scores.values())
    return {i for i, s in scores.items() if sign * s == top}, sign * top


def smallest(scores):
    return best(scores, -1)


def largest(scores):
    return best(scores, 1)


class Near(Exception):
    """Scores are too close for two ways of rounding."""


def check_near(scores):
    values = sorted(scores.values())
    for a, b in zip(values, values[1:]):
        if a != b and abs(a - b) < 1e-7 * max(1, abs(a)):
            raise Near


def first(ids):
    return {min(ids)}


# ---- policies: (request, {id: worker}, options, role) -> (set of workers, score) -----------

def least_loaded(q, ws, o, role):
    key = {"requests": "inflight", "tokens": "tokens", "prefill-tokens": "prefill"}[o.get("by", "requests")]
    scores = {i: w[key] / w["cap"] for i, w in ws.items()}
    check_near(scores)
    return smallest(scores)


def random_policy(q, ws, o, role):
    return set(ws), None


def power_of_two(q, ws, o, role):
    if len(ws) == 1:
        return set(ws), None
    return {i for i, w in ws.items()
            if any(j != i and v["inflight"] >= w["inflight"] for j, v in ws.items())}, None


def session(q, ws, o, role):
    if q["session"] == 0:
        return smallest({i: w["inflight"] for i, w in ws.items()})

    def weight(i):
        z = ((q["session"] + 1) * 0x9e3779b97f4a7c15 + i) & M64
        z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & M64
        z = ((z ^ z >> 27) * 0x94d049bb133111eb) & M64
        return z ^ z >> 31
    return {max(ws, key=weight)}, None


def dynamo_kv(q, ws, o, role):
    c = o.get("overlap-score-credit", 1)
    d = o.get("overlap-score-credit-decay", 0)
    s = o.get("prefill-load-scale", 1)
    a = o.get("decode-active-request-weight", 0)
    host = o.get("host-cache-hit-weight", 0.75)
    disk = o.get("disk-cache-hit-weight", 0.25)
    m = o.get("shared-cache-multiplier", 0.5)
    t = o.get("router-queue-threshold", -1)
    if t >= 0 and role != "decode" and all(w["prefill"] > t * w["batched"] for w in ws.values()):
        return None, None
    least = min(w["prefill"] for w in ws.values())
    scores = {}
    for i, w in ws.items():
        decode = w["active"] + nblocks(q) - w["ahit"]
        if role == "prefill":
            decode = 0
        if role == "decode":
            decode = w["active"] + nblocks(q)
            if o.get("conditional-disagg", "off") != "off" and c > 0:
                beyond = max(0, q["shared"] - w["leading"])
                decode -= c * w["leading"] + host * w["host"] + disk * w["disk"] + m * beyond
        cost = max(0, decode) + a * w["inflight"]
        if role != "decode":
            raw = (w["prefill"] + q["prompt"]) / q["bs"]
            blocks = -(-q["prompt"] // q["bs"])
            decay = 1 / (1 + d * ((w["prefill"] - least) / q["bs"]) / blocks)
            beyond = max(0, q["shared"] - w["leading"])
            credit = c * decay * w["leading"] + host * w["host"] + disk * w["disk"] + m * beyond
            cost += s * max(0, raw - credit)
        scores[i] = cost
    check_near(scores)
    if o.get("router-temperature", 0) > 0:
        return set(ws), None
    return smallest(scores)


def spread(values):
    """(max - v) / (max - min), and 1 for all if they are equal."""
    lo, hi = min(values.values()), max(values.values())
    return {i: 1.0 if hi == lo else (hi - v) / (hi - lo) for i, v in values.items()}


def llm_d_ttft(q, w):
    hit = hit_tokens(q, w)
    return 1000 * (prefill_s(0, w["qtok"]) + prefill_s(hit, q["prompt"] - hit))


def llm_d_tpot(q, w):
    return 1000 * decode_s(w["running"] + 1, w["ctx"] + q["prompt"])


def llm_d_latency(q, ws, o):
    ttft_limit, tpot_limit = o.get("slo-ttft-ms", 0), o.get("slo-tpot-ms", 0)
    if not (ttft_limit > 0 and tpot_limit > 0):
        queue = spread({i: w["waiting"] for i, w in ws.items()})
        return {i: (queue[i] + 1 - w["kv"] + rate(q, w)) / 3 for i, w in ws.items()}
    room = {i: (ttft_limit - llm_d_ttft(q, w), tpot_limit - llm_d_tpot(q, w)) for i, w in ws.items()}
    good = [i for i in ws if room[i][0] >= 0 and room[i][1] >= 0]
    least = o.get("headroom", "least") == "least"
    if good:
        group = good
    else:
        least = True
        group = [i for i in ws if ws[i]["inflight"] == 0]
        for test in (lambda r: r[0] >= 0, lambda r: r[1] >= 0, lambda r: True):
            if not group:
                group = [i for i in ws if test(room[i])]
    ranges = []
    for k in (0, 1):
        values = [abs(room[i][k]) for i in group]
        ranges.append((min(values), max(values) - min(values)))
    weights = [0.8, 0.2]
    use = [k for k in (0, 1) if ranges[k][1] > 1e-9]
    out = {i: 0.0 for i in ws}
    for i in group:
        if use:
            total = sum(weights[k] for k in use)
            place = sum(weights[k] * (abs(room[i][k]) - ranges[k][0]) / ranges[k][1] for k in use) / total
        else:
            place = 0.5
        out[i] = 0.02 + 0.98 * (1 - place if least else place)
    return out


def rate(q, w):
    return hit_blocks(w) / nblocks(q) if nblocks(q) else 0.0


def llm_d_prefix(q, ws, o, style):
    if o.get("prefix-score", style) == "match-rate":
        return {i: rate(q, w) for i, w in ws.items()}
    raw = {i: w["gpu"] + o.get("host-weight", 0.8) * w["host"] + o.get("disk-weight", 0.8) * w["disk"]
           for i, w in ws.items()}
    lo, hi = min(raw.values()), max(raw.values())
    return {i: 1.0 if hi == lo else (v - lo) / (hi - lo) for i, v in raw.items()}


def llm_d_cold(q, ws):
    ids = sorted(ws)
    if any(hit_blocks(w) > 0 for w in ws.values()):
        return {i: 0.5 for i in ids}
    n = len(ids)
    return {i: 1.0 if n == 1 else 1 - k / (n - 1) for k, i in enumerate(ids)}


def llm_d(q, ws, o, role, style="match-rate"):
    if o.get("affinity-threshold", 0) > 0 and len(ws) > 1:
        near = {i for i, w in ws.items() if rate(q, w) >= o["affinity-threshold"]}
        late = o.get("max-ttft-penalty-ms", 5000)
        if near:
            far = set(ws) - near
            broken = late > 0 and far and (min(llm_d_ttft(q, ws[i]) for i in near)
                                           - min(llm_d_ttft(q, ws[i]) for i in far) > late)
            if not broken:
                ws = {i: ws[i] for i in near}
    if o.get("slo-headroom-tier") == "on" and len(ws) > 1:
        good = {i: w for i, w in ws.items() if llm_d_ttft(q, w) <= o.get("slo-ttft-ms", 0)
                and llm_d_tpot(q, w) <= o.get("slo-tpot-ms", 0)}
        ws = good or ws
    most = max(w["inflight"] for w in ws.values())
    qt, tt = o.get("queue-threshold", 128), o.get("token-threshold", 4194304)
    idle, busy = o.get("idle-threshold", 0), o.get("max-busy-score", 1)
    scorers = {
        "prefix": (3, lambda: llm_d_prefix(q, ws, o, style)),
        "queue": (2, lambda: spread({i: w["waiting"] for i, w in ws.items()})),
        "kv": (2, lambda: {i: 1 - w["kv"] for i, w in ws.items()}),
        "running": (0, lambda: spread({i: w["running"] for i, w in ws.items()})),
        "load-aware": (0, lambda: {i: 0.5 if w["waiting"] == 0 else max(0, 0.5 * (1 - w["waiting"] / qt))
                                   for i, w in ws.items()}),
        "active-request": (0, lambda: {i: 1.0 if w["inflight"] <= idle else (most - w["inflight"]) / most * busy
                                       for i, w in ws.items()}),
        "token-load": (0, lambda: {i: 1 - min(1, w["tokens"] / tt) for i, w in ws.items()}),
        "no-hit-lru": (0, lambda: llm_d_cold(q, ws)),
        "session": (0, lambda: {i: 0.0 for i in ws}),
        "latency": (0, lambda: llm_d_latency(q, ws, o)),
    }
    total = {i: 0.0 for i in ws}
    for name, (weight, scorer) in scorers.items():
        weight = o.get(name, weight)
        if weight:
            for i, s in scorer().items():
                total[i] += weight * s
    check_near(total)
    picker = o.get("picker", "max-score")
    if picker == "weighted-random" and max(total.values()) > 0:
        return {i for i, s in total.items() if s > 0}, None
    if picker != "max-score":
        return set(ws), None
    return largest(total)


def llm_d_precise(q, ws, o, role):
    return llm_d(q, ws, o, role, "min-max")


def sgl_cache_aware(q, ws, o, role):
    loads = [w["inflight"] for w in ws.values()]
    lo, hi = min(loads), max(loads)
    absolute = o.get("balance-abs-threshold", 64)
    fewest = {i for i, w in ws.items() if w["inflight"] == lo}
    imbalanced = hi - lo > absolute and hi > o.get("balance-rel-threshold", 1.5) * lo
    keep = o.get("keep-affinity", "off") == "on"
    if imbalanced and not keep:
        return fewest, lo
    allowed = {i: w for i, w in ws.items() if not imbalanced or w["inflight"] <= lo + absolute}
    top = max(hit_tokens(q, w) for w in allowed.values())
    if top / q["prompt"] > o.get("cache-threshold", 0.3):
        return {i for i, w in allowed.items() if hit_tokens(q, w) == top}, top
    return fewest, lo


def lmetric(q, ws, o, role):
    rows = {i: ((q["prompt"] - hit_tokens(q, w)) * (w["inflight"] + 1), w["inflight"],
                q["prompt"] - hit_tokens(q, w), i) for i, w in ws.items()}
    win = min(rows, key=lambda i: rows[i])
    return {win}, rows[win][0]


def vllm_kv_aware(q, ws, o, role):
    top = max(hit_blocks(w) for w in ws.values())
    if top > 0:
        return {max(i for i, w in ws.items() if hit_blocks(w) == top)}, top
    lo = min(w["inflight"] for w in ws.values())
    return first(i for i, w in ws.items() if w["inflight"] == lo), lo


def vllm_dp(q, ws, o, role):
    weight = o.get("waiting-weight", 4)
    ids = sorted(ws)
    start = len(ids) * q["router"] // q["routers"]
    order = ids[start:] + ids[:start]
    scores = {i: ws[i]["waiting"] * weight + ws[i]["running"] for i in order}
    win = min(order, key=lambda i: scores[i])
    return {win}, scores[win]


def smetric(q, ws, o, role):
    crossover, rate_ = o.get("attention-crossover-tokens", 0), o.get("prefill-rate", 0)
    L = q["prompt"]

    def work(w):
        n = L - hit_tokens(q, w)
        return math.ceil(n + (n * (L - n / 2) / crossover if crossover else 0))
    limit = o.get("slack", 1) * (o.get("ttft-slo-secs", 1) + o.get("ttft-slo-secs-per-1k-tokens", 0.0625) * L / 1000)
    meets = {i: rate_ == 0 or work(w) / rate_ <= limit for i, w in ws.items()}
    ids = sorted(ws)
    if role == "decode":
        lo = min(w["inflight"] for w in ws.values())
        return first(i for i in ids if ws[i]["inflight"] == lo), lo
    far = max(ids, key=lambda i: (hit_tokens(q, ws[i]), -i))
    if q["history"] > 0 and hit_tokens(q, ws[far]) > o.get("hit-ratio", 0.5) * q["history"] \
            and (meets[far] or not any(meets.values())):
        return {far}, hit_tokens(q, ws[far])
    score = {i: work(w) * (w["inflight"] if role == "serve" else 1) for i, w in ws.items()}
    win = min(ids, key=lambda i: (score[i], i))
    return {win}, score[win]


def production_loadaware(q, ws, o, role):
    mean = sum(w["inflight"] for w in ws.values()) / len(ws)
    scores = {i: hit_tokens(q, w) / q["prompt"] - o.get("beta", 1) * (w["inflight"] - mean) / max(1, mean)
              for i, w in ws.items()}
    check_near(scores)
    return largest(scores)


def ray_prefix(q, ws, o, role):
    loads = [w["inflight"] for w in ws.values()]
    if max(loads) - min(loads) > o.get("imbalanced-threshold", 10):
        return power_of_two(q, ws, o, role)
    top = max(hit_tokens(q, w) for w in ws.values())
    if top / q["prompt"] >= o.get("match-rate-threshold", 0.1):
        group = {i: w for i, w in ws.items() if hit_tokens(q, w) == top}
    else:
        size = min(w["known"] for w in ws.values())
        group = {i: w for i, w in ws.items() if w["known"] == size}
    return smallest({i: w["inflight"] for i, w in group.items()})


def percent(q, w):
    return hit_blocks(w) * 100 // nblocks(q) if nblocks(q) else 0


def throughput(w):
    return w["running"] / decode_s(w["running"], w["ctx"]) if w["running"] else 0.0


def free_percent(w):
    return max(0.1, 100 - 100 * w["kv"])


def aibrix_prefix(q, ws, o, role):
    runs = {i: w["inflight"] for i, w in ws.items()}
    if role == "prefill":
        most = max(1, max(runs.values()))
        scores = {i: (100 - percent(q, w)) * 0.1 + runs[i] / most for i, w in ws.items()}
        check_near(scores)
        return smallest(scores)
    if role == "decode":
        most = max(1, max(runs.values()))
        thru = max(1, max(throughput(w) for w in ws.values()))
        free = max(1, max(free_percent(w) for w in ws.values()))
        scores = {i: (runs[i] / most + 1 - throughput(w) / thru) / (free_percent(w) / free) for i, w in ws.items()}
        check_near(scores)
        return smallest(scores)
    lo = min(runs.values())
    group = dict(ws)
    if max(runs.values()) - lo > o.get("imbalance-abs-count", 8):
        group = {i: w for i, w in ws.items() if runs[i] == lo}
    mean = sum(runs.values()) / len(runs)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in runs.values()) / len(runs))
    limit = mean + o.get("standard-deviation-factor", 1) * deviation
    if any(abs(r - limit) < 1e-7 and r != limit for r in runs.values()):
        raise Near
    matched = {i: w for i, w in group.items() if percent(q, w) > 0 and runs[i] <= limit}
    if matched:
        top = max((percent(q, w), -runs[i]) for i, w in matched.items())
        return {i for i, w in matched.items() if (percent(q, w), -runs[i]) == top}, None
    return smallest(runs)


def conductor(q, ws, o, role):
    if role == "decode":
        scores = {}
        for i, w in ws.items():
            ms = 1000 / throughput(w) if throughput(w) > 0 else 20
            ms *= 1 + 1 / max(1, w["inflight"])
            if w["kv"] > o.get("kv-pressure", 0.9):
                ms *= o.get("kv-penalty", 1.5)
            scores[i] = ms
        check_near(scores)
        return smallest(scores)
    pa, pb = o.get("prefix-ms-per-token", 0.005), o.get("prefix-ms", 1)
    fa, fe, fc = o.get("prefill-ms-factor", 0.001), o.get("prefill-exponent", 1.5), o.get("prefill-ms", 5)

    def prefill(tokens):
        return 0 if tokens <= 0 else fa * tokens ** fe + fc
    scores = {}
    for i, w in ws.items():
        hit = hit_tokens(q, w)
        scores[i] = (w["inflight"] * prefill(512) + (pa * hit + pb if hit > 0 else 0)
                     + prefill(q["prompt"] - hit))
    check_near(scores)
    return smallest(scores)


def preble(q, ws, o, role):
    hits = {i: hit_tokens(q, w) for i, w in ws.items()}
    top = max(hits.values())
    if top > o.get("prefix-threshold", 0.5) * q["prompt"]:
        return first(i for i in ws if hits[i] == top), 0
    scores = {i: prefill_s(hits[i], q["prompt"] - hits[i]) for i in ws}
    check_near(scores)
    ids, score = smallest(scores)
    return first(ids), score


def oracle(q, ws, o, role):
    scores = {}
    for i, w in ws.items():
        hit = hit_tokens(q, w)
        s = decode_s(w["running"] + 1, w["ctx"] + q["prompt"])
        if role != "decode":
            s += prefill_s(0, w["qtok"]) + prefill_s(hit, q["prompt"] - hit)
        scores[i] = s
    check_near(scores)
    return smallest(scores)


POLICIES = {
    "random": random_policy, "least-loaded": least_loaded, "power-of-two": power_of_two,
    "session": session, "dynamo-kv": dynamo_kv, "llm-d": llm_d, "llm-d-precise": llm_d_precise,
    "sgl-cache-aware": sgl_cache_aware, "lmetric": lmetric, "vllm-kv-aware": vllm_kv_aware,
    "vllm-dp": vllm_dp, "smetric": smetric, "production-loadaware": production_loadaware,
    "aibrix-prefix": aibrix_prefix, "conductor": conductor, "preble": preble,
    "ray-prefix": ray_prefix, "oracle": oracle,
}
