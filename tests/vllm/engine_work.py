"""Configurations and requests of the engine comparison (tests/vllm/engine).

A configuration is a name, arguments of vLLM's engine, and a recipe of requests. Requests come from a
seed alone, so that both sides get the same ones, and they come at given steps, so that nothing depends
on the clock.
"""
from dataclasses import dataclass, field
import random

VOCABULARY = 512  # of the model `tiny`; its end token is 1
BLOCK = 16


@dataclass
class Arrival:
    """A request and the step before which it comes."""
    step: int
    name: str
    prompt: list[int]
    params: dict
    priority: int = 0
    abort_step: int | None = None
    adapter: int = 0
    salt: str | None = None


@dataclass
class Config:
    """What the engine is told, and what its requests look like."""
    name: str
    engine: dict = field(default_factory=dict)
    prompt: tuple[int, int] = (8, 120)
    output: tuple[int, int] = (1, 24)
    families: int = 8           # prefixes that prompts begin with; 0: none
    shared: tuple[int, int] = (16, 96)
    per_step: float = 2.0       # requests that come in a step
    sampling: str = "greedy"
    priorities: int = 1
    aborts: float = 0.0
    adapters: int = 0
    salts: int = 0
    needs: str = ""             # what must be prepared: see engine_models.py and engine_pins.py


def few(blocks: int, **more) -> dict:
    return {"num_gpu_blocks_override": blocks, "block_size": BLOCK, **more}


CONFIGS = [
    Config("prefix", few(2000, max_num_seqs=32), families=6, shared=(64, 320), prompt=(8, 60)),
    Config("preempt", few(40, max_num_seqs=24), output=(20, 60), prompt=(10, 90), per_step=3),
    Config("priority", few(48, max_num_seqs=16, scheduling_policy="priority"), priorities=5,
           output=(10, 50), per_step=3, aborts=0.05),
    Config("sampling", few(600, max_num_seqs=32), sampling="mixed", aborts=0.05),
    Config("chunked", few(900, max_num_seqs=16, max_num_batched_tokens=48,
                          long_prefill_token_threshold=20), prompt=(30, 400), per_step=0.4),
    Config("nocache", few(300, max_num_seqs=32, enable_prefix_caching=False), sampling="mixed",
           aborts=0.05),
    Config("xxhash_cbor", few(200, max_num_seqs=16, prefix_caching_hash_algo="xxhash_cbor"),
           shared=(40, 200), salts=3),
    Config("sha256_cbor", few(200, max_num_seqs=16, prefix_caching_hash_algo="sha256_cbor"),
           shared=(40, 200), salts=3),
    Config("grammar", few(400, max_num_seqs=16), sampling="grammar", needs="tokenizer",
           output=(4, 40), per_step=1),
    # Greedy alone: with drafts and seeds the CPU build differs from itself (--twice shows it).
    Config("drafts", few(120, max_num_seqs=16, speculative_config={
        "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3,
        "prompt_lookup_min": 1}), sampling="greedy", output=(10, 40), needs="drafts"),
    Config("window", few(300, max_num_seqs=24), needs="window", output=(10, 60),
           prompt=(10, 200)),
    Config("adapters", few(300, max_num_seqs=16, enable_lora=True, max_loras=2, max_lora_rank=8),
           adapters=4, needs="adapter"),
    Config("wide", few(1500, max_num_seqs=256), per_step=64, output=(20, 40)),
    Config("async", few(400, max_num_seqs=32), sampling="mixed", needs="streams", aborts=0.05),
    Config("async_chunked", few(900, max_num_seqs=16, max_num_batched_tokens=48,
                                scheduling_policy="priority"), prompt=(30, 300), per_step=0.5,
           priorities=3, needs="streams", aborts=0.05),
    Config("async_preempt", few(40, max_num_seqs=24), output=(20, 60), prompt=(10, 90), per_step=3,
           needs="streams"),
]


def sampling_of(kind: str, rng: random.Random, config: Config) -> dict:
    """Arguments of vLLM's SamplingParams."""
    made = {"temperature": 0.0, "max_tokens": rng.randint(*config.output)}
    seeded = {"temperature": rng.choice([0.5, 1.0, 1.5]), "seed": rng.randrange(1 << 30)}
    if kind == "seeded":
        return made | seeded if rng.random() < 0.5 else made
    if kind == "grammar":
        return made | seeded | {"grammar": rng.choice(["json", "regex", "choice", None])}
    if kind != "mixed":
        return made | {"ignore_eos": rng.random() < 0.5}
    return made | rng.choice([
        {}, {"max_tokens": 1}, {"ignore_eos": True}, seeded, seeded | {"top_p": 0.7},
        seeded | {"top_k": 20}, seeded | {"min_p": 0.05, "n": rng.randint(2, 3)},
        seeded | {"stop_token_ids": rng.sample(range(2, VOCABULARY), 60)},
        seeded | {"stop_token_ids": rng.sample(range(2, VOCABULARY), 60), "min_tokens": made["max_tokens"] // 2},
        {"logprobs": 3}, {"prompt_logprobs": 1, "logprobs": 0},
        {"temperature": 1.0},  # the engine's own random numbers: the same batches, the same tokens
        seeded | {"presence_penalty": 0.5, "frequency_penalty": 0.2, "repetition_penalty": 1.1},
        {"repetition_detection": {"max_pattern_size": 3, "min_pattern_size": 1, "min_count": 3}},
        seeded | {"logit_bias": {7: 4.0, 9: -4.0}}, seeded | {"bad_words_ids": [[5], [8, 9]]}])


def arrivals(config: Config, count: int, seed: int) -> list[Arrival]:
    """The same list on both sides."""
    rng = random.Random(f"{config.name} {seed}")

    def tokens(least: int, most: int) -> list[int]:
        return [rng.randrange(2, VOCABULARY) for _ in range(rng.randint(least, most))]

    prefixes = [tokens(*config.shared) for _ in range(config.families)] or [[]]
    made = []
    for i in range(count):
        step = int(i / config.per_step)
        prompt = rng.choice(prefixes) + tokens(*config.prompt)
        if rng.random() < 0.1 and made:
            prompt = list(rng.choice(made).prompt)  # the very same again
        arrival = Arrival(step, f"r{i:05}", prompt, sampling_of(config.sampling, rng, config))
        arrival.priority = rng.randrange(config.priorities)
        if rng.random() < config.aborts:
            arrival.abort_step = step + rng.randint(1, 12)
        if config.adapters:
            arrival.adapter = rng.randint(0, config.adapters)
        if config.salts:
            arrival.salt = rng.choice([None, *map(str, range(config.salts))])
        made.append(arrival)
    return made
