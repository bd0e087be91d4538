#!/usr/bin/env python3
"""Measures steps of a decoder on the GPU at hand, for `quire time --csv` and `--calibrate`.

    tools/measure_steps.py llama3-8b qwen3-0.6b > steps.csv
    tools/measure_steps.py mine:32,4096,32,8,128,14336,128256      layers, hidden, heads, KV heads,
                                                                   head size, FFN, vocabulary
    quire time --calibrate steps.csv --write-constants mine.txt

Random weights in bfloat16; RMSNorm, grouped-query attention, SwiGLU, output head for the last token
of each request. Steps of up to 2,048 tokens are captured as a CUDA graph, as engines do. Attention is
the fastest of PyTorch's kernels. Needs PyTorch and a CUDA GPU; takes about two minutes for a model.
"""

import argparse
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {
    "llama3-8b": (32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256),
    "qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936),
    "qwen3-14b": (40, 5120, 40, 8, 128, 17408, 151936),
    "qwen2.5-32b": (64, 5120, 40, 8, 128, 27648, 152064),
}
NAMES = "layers,hidden,heads,kv_heads,head_dim,ffn,vocab"
PREFILL = [16 << i for i in range(11)]
DECODE = [(b, c) for b in (1, 4, 16, 64, 128, 256) for c in (128, 1024, 4096, 16384)]
MAX_GRAPH_TOKENS = 2048
CACHE_BYTES = 40e9  # layers share buffers of keys and values where they would not fit otherwise
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)


def random(*size):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16) * 0.02


class Decoder:
    def __init__(self, shape):
        (self.layers, self.hidden, self.heads, self.kv_heads, self.dim, self.ffn,
         self.vocab) = shape
        inner = self.dim * (self.heads + 2 * self.kv_heads)
        self.blocks = [{"norm1": random(self.hidden), "qkv": random(inner, self.hidden),
                        "out": random(self.hidden, self.heads * self.dim),
                        "norm2": random(self.hidden),
                        "gate_up": random(2 * self.ffn, self.hidden),
                        "down": random(self.hidden, self.ffn)} for _ in range(self.layers)]
        self.norm = random(self.hidden)
        self.head = random(self.vocab, self.hidden)

    def step(self, x, attend, last):
        for i, b in enumerate(self.blocks):
            qkv = F.linear(F.rms_norm(x, (self.hidden,), b["norm1"]), b["qkv"])
            x = x + F.linear(attend(i, qkv), b["out"])
            gate, up = F.linear(F.rms_norm(x, (self.hidden,), b["norm2"]),
                                b["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, b["down"])
        return F.linear(F.rms_norm(x[last], (self.hidden,), self.norm), self.head)

    def prefill(self, tokens, backend):
        x = random(tokens, self.hidden)

        def attend(_layer, qkv):
            q, k, v = qkv.view(1, tokens, -1, self.dim).transpose(1, 2).split(
                [self.heads, self.kv_heads, self.kv_heads], 1)
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2).reshape(tokens, -1)

        return lambda: self.step(x, attend, slice(-1, None))

    def decode(self, batch, context, backend):
        x = random(batch, self.hidden)
        size = 2 * 2 * batch * self.kv_heads * context * self.dim
        count = max(1, min(self.layers, int(CACHE_BYTES / size)))
        caches = [random(2, batch, self.kv_heads, context, self.dim) for _ in range(count)]
        group = self.heads // self.kv_heads

        def attend(layer, qkv):
            keys, values = caches[layer % count]
            new = qkv.view(batch, self.heads + 2 * self.kv_heads, self.dim)
            keys[:, :, -1] = new[:, self.heads:self.heads + self.kv_heads]
            values[:, :, -1] = new[:, self.heads + self.kv_heads:]
            # The heads of a group read the same keys: they are queries of one head.
            q = new[:, :self.heads].reshape(batch, self.kv_heads, group, self.dim)
            with sdpa_kernel(backend):
                out = F.scaled_dot_product_attention(q, keys, values)
            return out.reshape(batch, -1)

        return lambda: self.step(x, attend, slice(None))


def measure(step, is_graph, runs=10):
    """Median ms of one call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    if is_graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    times = []
    for i in range(runs + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def best(make, is_graph):
    """The fastest backend's time; None where memory is short."""
    found = []
    for backend in BACKENDS:
        try:
            found.append(measure(make(backend), is_graph))
        except torch.cuda.OutOfMemoryError:
            pass
        except RuntimeError as error:
            print(f"{backend}: {str(error).splitlines()[0]}", file=sys.stderr)
        torch.cuda.empty_cache()
    return min(found) if found else None


def rows(decoder):
    for tokens in PREFILL:
        yield "prefill", tokens, 1, tokens, best(lambda b: decoder.prefill(tokens, b),
                                                 tokens <= MAX_GRAPH_TOKENS)
    for batch, context in DECODE:
        yield "decode", batch, batch, context, best(lambda b: decoder.decode(batch, context, b),
                                                    True)


def parse_model(text):
    name, _, sizes = text.partition(":")
    if not sizes and name in SHAPES:
        return name, SHAPES[name]
    shape = tuple(int(s) for s in sizes.split(","))
    if len(shape) != 7:
        raise argparse.ArgumentTypeError(f"{text}: seven sizes are needed, {NAMES}")
    return name, shape


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=parse_model, metavar="NAME[:SIZES]",
                        help=f"{', '.join(SHAPES)}; or a name and {NAMES}")
    args = parser.parse_args()
    torch.manual_seed(0)
    print(f"model,kind,tokens,batch,context,ms,{NAMES}")
    with torch.inference_mode():
        for name, shape in args.models:
            decoder = Decoder(shape)
            for kind, tokens, batch, context, ms in rows(decoder):
                if ms is not None:
                    print(f"{name},{kind},{tokens},{batch},{context},{ms:.4f},"
                          + ",".join(map(str, shape)), flush=True)
            del decoder
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
