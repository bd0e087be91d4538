#!/usr/bin/env python3
"""vLLM's own decoder reads what Quire writes.

    test_wire_vllm.py WIRE_BATCHES [SEED] [COUNT]

WIRE_BATCHES (wire_batches.c) writes batches as bytes and as JSON, in the form of the vLLM that is
installed: arrays (0.20.0) or maps (0.32.0). The bytes go through
msgspec.msgpack.Decoder(KVEventBatch) with its classes, and must say the same; encoded again, they
must be the same bytes. Skips (77) unless QUIRE_VLLM_PYTHON names an
interpreter with vLLM; QUIRE_VLLM_PLATFORM as in tests/parity/README.md.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def run_in_vllm():
    """Runs this file again with the interpreter that has vLLM."""
    python = os.environ.get("QUIRE_VLLM_PYTHON")
    if not python:
        print("skipped: QUIRE_VLLM_PYTHON is not set")
        sys.exit(SKIPPED)
    env = {**os.environ, "QUIRE_IN_VLLM": "1"}
    sys.exit(subprocess.run([python, __file__, *sys.argv[1:]], env=env, check=False).returncode)


def plain(value):
    """What a decoded value is in the JSON of wire_batches.c."""
    if isinstance(value, bytes):
        return {"x": value.hex()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def check_line(line, decoder, encoder):
    words, said = line.split(" ", 1)
    data, said = bytes.fromhex(words), json.loads(said)
    batch = decoder.decode(data)
    rank = said["rank"] if said["rank"] >= 0 else None
    assert batch.ts == said["ts"] and batch.data_parallel_rank == rank, said
    assert len(batch.events) == len(said["events"])
    for event, expected in zip(batch.events, said["events"]):
        assert type(event).__name__ == expected.pop("type")
        assert set(event.__struct_fields__) == set(expected), event
        for name, value in expected.items():
            assert plain(getattr(event, name)) == value, (name, event, value)
    again = encoder.encode(batch)
    assert again == data, (again.hex(), words)
    return len(batch.events)


def main():
    if not os.environ.get("QUIRE_IN_VLLM"):
        run_in_vllm()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity" / "record"))
    from recorder import load_platform
    load_platform()
    import msgspec
    from vllm.distributed.kv_events import BlockStored, KVEventBatch
    form = [] if BlockStored.__struct_config__.array_like else ["maps"]
    seed, count = (sys.argv[2:] + ["1", "2000"][len(sys.argv) - 2:])[:2]
    lines = subprocess.run([sys.argv[1], seed, count, *form], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    decoder, encoder = msgspec.msgpack.Decoder(KVEventBatch), msgspec.msgpack.Encoder()
    num_events = sum(check_line(line, decoder, encoder) for line in lines)
    assert len(lines) == int(count)
    print(f"vLLM read {len(lines)} batches with {num_events} events, and wrote the same bytes")


if __name__ == "__main__":
    main()
