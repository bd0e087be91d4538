"""Small traces of every format, from a seed, for the tests of `quire trace`."""

import json
import random


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def ids_of(rng, known, block, tokens):
    """Ids of a prompt that begins like an earlier one."""
    count = -(-tokens // block)
    start = list(rng.choice(known))[: rng.randrange(count + 1)] if known else []
    while len(start) < count:
        start.append(rng.randrange(10**6))
    known.append(start)
    return start


def mooncake(rng, sessions=False):
    known, rows, time = [], [], 0
    for i in range(60):
        time += rng.randrange(900)
        tokens = rng.randrange(1, 5000)
        row = {"timestamp": time, "input_length": tokens, "output_length": rng.randrange(1, 60),
               "hash_ids": ids_of(rng, known, 512, tokens), "priority": rng.randrange(3)}
        if sessions:
            row["session_id"] = f"s{i % 7}"
            if i >= 7:
                del row["timestamp"]
                row["delay"] = rng.randrange(3000) + 0.25
        rows.append(row)
    return lines(rows)


def agentic(rng):
    rows, time = [], 0
    for i in range(40):
        time += rng.randrange(300)
        row = {"request_id": f"r{i}", "input_length": 1100, "output_length": 5 + i % 9,
               "hash_ids": [0, 1, 10 + i]}
        if i % 4:
            row["wait_for"] = sorted({f"r{i - 1}", f"r{i - i % 4}"})
            row["delay"] = 10 * (i % 5)
            row["tool_wait_ms"] = 7
        else:
            row["timestamp"] = time
        rows.append(row)
    return lines(rows)


def delta(rng):
    rows = []
    for i in range(30):
        row = {"session_id": i % 5, "input_length": 700, "output_length": rng.randrange(1, 300),
               "hash_ids": [i % 5, 1000 + i]}
        row.update({"timestamp": 100 * i} if i < 5 else {"delay": 50 * (i % 7)})
        rows.append(row)
    return lines(rows)


def bailian(rng):
    known, rows, time = [], [], 0.0
    for i in range(50):
        time = round(time + rng.random(), 3)
        tokens = rng.randrange(1, 600)
        rows.append({"chat_id": i, "parent_chat_id": rng.randrange(i) if i % 3 else -1,
                     "timestamp": time, "input_length": tokens, "output_length": rng.randrange(40),
                     "type": "text", "turn": 1, "hash_ids": ids_of(rng, known, 16, tokens)})
    return lines(rows)


def azure(rng):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    for i in range(50):
        text += f"2023-11-16 18:{i // 60:02}:{i % 60:02}.{rng.randrange(10**7):07},"
        text += f"{rng.randrange(1, 3000)},{rng.randrange(200)}\n"
    return text


def burstgpt(rng):
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    for i in range(40):
        text += f"{5 + i * 0.7},ChatGPT,{rng.randrange(1, 3000)},{rng.randrange(200)},0,API log\n"
    return text


def sharegpt(rng):
    talks = []
    for i in range(12):
        talk = [{"from": "human", "value": "You are an assistant. " * 40}]
        for turn in range(rng.randrange(1, 5)):
            talk += [{"from": "human", "value": f"question {i} {turn} " * rng.randrange(1, 90)},
                     {"from": "gpt", "value": f"answer {i} {turn} " * rng.randrange(1, 90)}]
        talks.append({"id": str(i), "conversations": talk})
    return json.dumps(talks)


def agent(rng):
    def turns(start, first):
        ids, made, t = list(range(first, first + 6)), [], start
        for _ in range(rng.randrange(2, 5)):
            ids = ids + [rng.randrange(10**6)]
            made.append({"t": t, "in": 64 * len(ids) + rng.randrange(64), "out": rng.randrange(1, 90),
                         "hash_ids": ids, "think_time": round(rng.random() * 3, 3)})
            t += 5
        return made

    text = ""
    for i in range(8):
        requests = turns(0.0, 100 * i)
        requests.insert(1, {"t": 2.0, "type": "subagent", "requests": turns(2.5, 50)})
        requests.insert(2, {"t": 2.0, "type": "subagent", "requests": turns(2.5, 60)})
        text += json.dumps({"id": f"trace_{i}", "block_size": 64, "requests": requests}) + "\n"
    return text


def dynamo(rng):
    rows = []
    for i in range(40):
        start = 1_777_312_800_000 + 400 * i
        total = rng.randrange(50, 2000)
        row = {"schema": "dynamo.request.trace.v1", "event_type": "request_end",
               "event_time_unix_ms": start + total,
               "request": {"request_id": f"q{i}", "request_received_ms": start,
                           "total_time_ms": total, "output_tokens": 1 + i % 30,
                           "replay": {"trace_block_size": 16, "input_length": 16 * (3 + i % 4),
                                      "input_sequence_hashes": [7, 8, 9 + i % 3, i][: 3 + i % 4]
                                      + list(range(1000 * i, 1000 * i + max(0, i % 4 - 1)))}}}
        if i % 3:
            row["agent_context"] = {"session_id": f"c{i % 4}"}
            if i % 4 == 3:
                row["agent_context"]["parent_session_id"] = "c1"
        rows.append(row)
    rows.sort(key=lambda row: row["event_time_unix_ms"])
    return lines(rows)


def lmcache(rng):
    rows = []
    for i in range(30):
        text = "You are an assistant. " * 20 + f"question {i} " * rng.randrange(1, 40)
        rows.append({"timestamp": 1_760_995_776_000_000 + rng.randrange(10**7), "input": text,
                     "output": "word " * rng.randrange(60), "session_id": f"s{i % 5}"})
    return lines(rows)


def lmcache_gaps(rng):
    rows, talks = [], {}
    for i in range(30):
        talk = talks.setdefault(i % 4, [{"role": "system", "content": "You are. " * 50}])
        talk.append({"role": "user", "content": f"question {i} " * rng.randrange(1, 40)})
        rows.append({"session_id": f"s{i % 4}", "input": list(talk), "pre_gap": rng.random(),
                     "output_length": rng.randrange(1, 90)})
    return lines(rows)


def otel(rng):
    spans = []
    for i in range(40):
        start = 1_777_312_800_000_000_000 + i * 300_000_000 + rng.randrange(10**6)
        values = {"gen_ai.usage.input_tokens": {"intValue": str(rng.randrange(1, 2000))},
                  "gen_ai.usage.output_tokens": {"intValue": str(rng.randrange(1, 90))}}
        if i % 3:
            values["gen_ai.conversation.id"] = {"stringValue": f"c{i % 5}"}
        spans.append({"traceId": "t", "spanId": f"{i:016x}", "startTimeUnixNano": str(start),
                      "endTimeUnixNano": str(start + rng.randrange(10**9)),
                      "attributes": [{"key": k, "value": v} for k, v in values.items()]})
    rng.shuffle(spans)
    return lines([{"resourceSpans": [{"scopeSpans": [{"spans": spans[i:i + 8]}]}]}
                  for i in range(0, 40, 8)])


def vllm_log(rng):
    shared, text, ends = [rng.randrange(10**5) for _ in range(80)], "", []
    for i in range(30):
        ids = shared[: rng.randrange(81)] + [rng.randrange(10**5) for _ in range(1 + i)]
        at = f"11-19 20:{14 + i // 20}:{i % 20 + 10} [request_logger.py:52]"
        text += f"DEBUG {at} Request chatcmpl-{i} details: prompt: 'x', prompt_token_ids: {ids}, "
        text += f"prompt_embeds shape: None.\nINFO {at} Received request chatcmpl-{i}: params: S.\n"
        ends.append(f"INFO {at} Generated response chatcmpl-{i}: output: 'x', output_token_ids: "
                    f"{ids[: 1 + i % 7]}, finish_reason: stop\n")
    return text + "".join(reversed(ends))


def quire(rng):
    rows = [{"quire_workload": 1, "kind": "test"},
            {"time": 5, "prompt": [[1, 300], [2, 18]], "output": [3, 90], "id": "a", "pin": 2.5},
            {"time": 5.25, "session": 9, "prompt": [[1, 300], [4, 60]], "output": [5, 12]},
            {"session": 9, "think": 1.5, "more": [[6, 40]], "output": [7, 20]},
            {"time": 6, "prompt": 75, "output": 9, "priority": -2},
            {"after": ["a"], "think": 0.125, "prompt": [[1, 300], [8, 3]], "output": 4, "id": "b"},
            {"session": 9, "after": ["b"], "think": 3, "more": [[10, 5]], "output": 2, "last": True}]
    for i in range(30):
        rows.append({"time": 7 + i / 3, "prompt": [[1, rng.choice((300, 200))], [100 + i, 40]],
                     "output": [200 + i, 1 + i]})
    return lines(rows)


def all_samples(seed=1):
    """name -> (ending, format or None, text)"""
    rng = random.Random(seed)
    return {"mooncake": (".jsonl", None, mooncake(rng)),
            "sessions": (".jsonl", None, mooncake(rng, True)),
            "agentic": (".jsonl", None, agentic(rng)),
            "delta": (".jsonl", "mooncake-delta", delta(rng)),
            "bailian": (".jsonl", None, bailian(rng)),
            "azure": (".csv", None, azure(rng)),
            "burstgpt": (".csv", None, burstgpt(rng)),
            "sharegpt": (".json", None, sharegpt(rng)),
            "agent": (".jsonl", None, agent(rng)),
            "dynamo": (".jsonl", None, dynamo(rng)),
            "lmcache": (".jsonl", None, lmcache(rng)),
            "lmcache-gaps": (".jsonl", None, lmcache_gaps(rng)),
            "otel": (".json", None, otel(rng)),
            "vllm-log": (".log", None, vllm_log(rng)),
            "quire": (".jsonl", None, quire(rng))}
