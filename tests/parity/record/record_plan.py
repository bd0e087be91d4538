"""Records how vLLM plans its KV cache: random mixes of layers, and the shapes of known models.

    plan LEN STEP ENC FIT HYBRID EAGLE OVERRIDE DCP PCP BLOCK HASH CACHING CONNECTOR
    s k1 b16 h8 d128 t2     a layer spec: letters are fields (see FIELDS), z is one Mamba state
    l 0*3,1                 the layers: spec 0 three times, spec 1
    w 1000000 0-3           a worker: its memory and its layers
    r a1f                   the answer's fingerprint

    m model_type=llama ...  in place of s and l: a known model by the fields of its config.json
    x a1f                   the fingerprint of its layers

Every layer is an object of its own, since vLLM writes into some of them.
"""
import struct
from types import SimpleNamespace

import torch
from plan_models import MODELS, engines

from vllm.v1 import kv_cache_interface as kvi
from vllm.v1.core import kv_cache_utils as kvu

# letter: (attribute of vLLM's spec, kinds that have it)
FULL, TQ, MLA, SINK, SWA, SWMLA, LOCAL, MAMBA, CROSS = range(1, 10)
CLASSES = {FULL: kvi.FullAttentionSpec, TQ: kvi.TQFullAttentionSpec, MLA: kvi.MLAAttentionSpec,
           SINK: kvi.SinkFullAttentionSpec, SWA: kvi.SlidingWindowSpec,
           SWMLA: kvi.SlidingWindowMLASpec, LOCAL: kvi.ChunkedLocalAttentionSpec,
           MAMBA: kvi.MambaSpec, CROSS: kvi.CrossAttentionSpec}
KINDS = {cls: kind for kind, cls in CLASSES.items()}
DTYPES = [None, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.int8, torch.uint8, torch.int32]
CACHES = [None, "auto", "fp8", "fp8_ds_mla"]
VERSIONS = [None, "deepseek_v4"]
MAMBAS = ["mamba2", "mamba1", "linear_attention", "short_conv", "gdn_attention", "kda"]
MODES = ["none", "all", "align"]
FIELDS = {"b": "block_size", "h": "num_kv_heads", "d": "head_size", "v": "head_size_v",
          "t": "dtype", "q": "kv_quant_mode", "p": "page_size_padded", "w": "sliding_window",
          "c": "attention_chunk_size", "n": "sink_len", "u": "tq_slot_size",
          "m": "cache_dtype_str", "e": "model_version", "a": "alignment", "r": "compress_ratio",
          "y": "mamba_type", "o": "mamba_cache_mode", "x": "num_speculative_blocks"}
TABLES = {"t": DTYPES, "m": CACHES, "e": VERSIONS, "y": MAMBAS, "o": MODES}


def make_spec(text):
    """vLLM's object for a line of fields."""
    values, states = {}, []
    for word in text.split():
        if word[0] == "z":
            dtype, dims = word[1:].split(":")
            states.append((DTYPES[int(dtype)], tuple(int(d) for d in dims.split(","))))
        else:
            values[word[0]] = int(word[1:])
    kind = values.pop("k")
    kwargs = {FIELDS[k]: TABLES[k][v] if k in TABLES else v for k, v in values.items()}
    if "kv_quant_mode" in kwargs:
        kwargs["kv_quant_mode"] = kvi.KVQuantMode(kwargs["kv_quant_mode"])
    if kind == MAMBA:
        kwargs["shapes"] = tuple(shape for _, shape in states)
        kwargs["dtypes"] = tuple(dtype for dtype, _ in states)
    return CLASSES[kind](**kwargs)


def spec_text(spec):
    """The fields of vLLM's object, as parity_plan.c writes those of a quire_layer_spec."""
    words = [f"k{KINDS[type(spec)]}"]
    for letter, name in FIELDS.items():
        value = getattr(spec, name, None)
        if letter in TABLES:
            value = TABLES[letter].index(value) if value is not None else 0
        if value:
            words.append(f"{letter}{int(value)}")
    if isinstance(spec, kvi.MambaSpec):
        words += [f"z{DTYPES.index(dtype)}:{','.join(map(str, shape))}"
                  for shape, dtype in zip(spec.shapes, spec.dtypes)]
    return " ".join(words)


def make_config(p):
    """What vLLM's functions read of a VllmConfig."""
    name = SimpleNamespace
    return name(
        model_config=name(max_model_len=p.length, original_max_model_len=-1 if p.fit else p.length),
        scheduler_config=name(max_num_batched_tokens=p.step, max_num_encoder_input_tokens=p.encoder,
                              disable_hybrid_kv_cache_manager=not p.hybrid),
        parallel_config=name(decode_context_parallel_size=p.dcp,
                             prefill_context_parallel_size=p.pcp),
        cache_config=name(mamba_cache_mode=MODES[p.mamba_mode], block_size=p.block,
                          num_gpu_blocks_override=p.override or None,
                          hash_block_size=p.hash or None, enable_prefix_caching=bool(p.caching)),
        speculative_config=name(use_eagle=lambda: True) if p.eagle else None,
        kv_transfer_config=name() if p.connector else None)


class Watch:
    """Listens in on get_kv_cache_configs: the groups of the whole model, and memory checks."""

    def __init__(self):
        self.groups, self.needed, self.shortage = [], [], None

    def __enter__(self):
        self.saved = kvu.get_kv_cache_groups, kvu._check_enough_kv_cache_memory
        kvu.get_kv_cache_groups = self.get_groups
        kvu._check_enough_kv_cache_memory = self.check
        return self

    def __exit__(self, *_):
        kvu.get_kv_cache_groups, kvu._check_enough_kv_cache_memory = self.saved

    def get_groups(self, *args):
        self.groups = self.saved[0](*args)
        return self.groups

    def check(self, available, get_needed, max_len, estimate):
        try:
            self.saved[1](available, get_needed, max_len, estimate)
        except ValueError:
            self.shortage = f"{len(self.needed)} {get_needed()} {max_len} {estimate(available)}"
            raise
        self.needed.append(get_needed())


def layer_ids(names):
    return ",".join(names) or "-"


def double_bits(value):
    return struct.pack(">d", value).hex()


def describe(config, configs, watch):
    """Everything about a plan that worked."""
    scheduler = kvu.generate_scheduler_kv_cache_config(configs)
    sizes = [g.kv_cache_spec.block_size for g in scheduler.kv_cache_groups]
    if config.cache_config.block_size == 0:
        config.cache_config.block_size = min(sizes, default=16)
    block_size, hash_block_size = kvu.resolve_kv_cache_block_sizes(scheduler, config)
    ranks = (config.parallel_config.decode_context_parallel_size
             * config.parallel_config.prefill_context_parallel_size)
    tokens = scheduler.num_blocks // len(sizes) * min(sizes) * ranks if sizes else 0
    lines = [f"{scheduler.num_blocks} {config.model_config.max_model_len} {tokens} {block_size} "
             f"{hash_block_size}"]
    for whole, seen in zip(watch.groups, scheduler.kv_cache_groups):
        lines.append(f"g {layer_ids(whole.layer_names)} {whole.kv_cache_spec.page_size_bytes} "
                     f"{int(whole.is_eagle_group)}{int(seen.is_eagle_group)} "
                     f"{spec_text(seen.kv_cache_spec)}")
        if isinstance(whole.kv_cache_spec, kvi.UniformTypeKVCacheSpecs):
            lines += [f"y {spec_text(s)}" for s in whole.kv_cache_spec.kv_cache_specs.values()]
    for needed, worker in zip(watch.needed or [0] * len(configs), configs):
        concurrency = (kvu.get_max_concurrency_for_kv_cache_config(config, worker)
                       if worker.kv_cache_groups else 0.0)
        lines.append(f"w {needed} {double_bits(concurrency)}")
        lines += [f"p {layer_ids(g.layer_names)}" for g in worker.kv_cache_groups]
        lines += [f"t {t.size} {layer_ids(t.shared_by)}" for t in worker.kv_cache_tensors]
    return "|".join(lines)


def answer(p, layers, workers):
    """vLLM's plan in words, or the class of its error."""
    config = make_config(p)
    specs = [{str(i): layers[i] for i in ids} for ids, _ in workers]
    with Watch() as watch:
        try:
            configs = kvu.get_kv_cache_configs(config, specs, [memory for _, memory in workers])
            text = "ok"
        except (AssertionError, NotImplementedError, AttributeError, ValueError) as error:
            text = error_class(error, watch)
    if text == "ok" and not all_placed(configs, specs):
        text = "mixed"
    if text != "ok":
        return text
    try:
        return describe(config, configs, watch)
    except ValueError:
        return "config"


def all_placed(configs, specs):
    """False where a layer is in no tensor: vLLM's workers refuse that when they allocate."""
    return all({name for tensor in config.kv_cache_tensors for name in tensor.shared_by} == set(spec)
               for config, spec in zip(configs, specs))


def error_class(error, watch):
    if watch.shortage is not None:
        return f"memory {watch.shortage}"
    if "auto-fit" in str(error):
        return "memory"
    return "config" if "DCP" in str(error) else "mixed"


def runs_text(numbers):
    """0,0,0,1 as 0*3,1."""
    runs = []
    for number in numbers:
        if runs and runs[-1][0] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return ",".join(f"{n}*{count}" if count > 1 else f"{n}" for n, count in runs) or "-"


def ranges_text(ids):
    """0,1,2,5 as 0-2,5."""
    ranges = []
    for i in ids:
        if ranges and ranges[-1][1] == i - 1:
            ranges[-1][1] = i
        else:
            ranges.append([i, i])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in ranges) or "-"


def start_case(writer, p):
    writer.start_case(f"plan {p.length} {p.step} {p.encoder} {int(p.fit)} {int(p.hybrid)} "
                      f"{int(p.eagle)} {p.override} {p.dcp} {p.pcp} {p.block} {p.hash} "
                      f"{int(p.caching)} {int(p.connector)}")


def end_case(writer, p, layers, workers):
    for ids, memory in workers:
        writer.line(f"w {memory} {ranges_text(ids)}")
    writer.checked("r", answer(p, layers, workers))
    writer.end_case()


def write_case(writer, p, texts, places, workers):
    """Writes one case: texts are specs, places says which spec each layer has."""
    start_case(writer, p)
    for text in texts:
        writer.line(f"s {text}")
    writer.line(f"l {runs_text(places)}")
    end_case(writer, p, [make_spec(texts[i]) for i in places], workers)


# ---- known models ------------------------------------------------------------


def pages_hold(spec):
    """False where vLLM's own padding is smaller than the page: Bamba with drafts."""
    try:
        return spec.page_size_bytes > 0
    except AssertionError:
        return False


def record_model(writer, model, stages, **more):
    """A model from its fields to its plan, in a pipeline of some stages with 40 GB each."""
    p = SimpleNamespace(length=model.length, step=8192, encoder=1500, fit=True, hybrid=True,
                        eagle=False, override=0, dcp=1, pcp=1, block=0, hash=0,
                        caching=model.mode != "none", connector=False,
                        mamba_mode=MODES.index(model.mode))
    vars(p).update(more)
    layers = model.layers()
    start_case(writer, p)
    writer.line(f"m {model.fields_text()}")
    if not all(pages_hold(layer) for layer in layers):
        writer.checked("x", "config")
        writer.end_case()
        return
    writer.checked("x", "|".join(spec_text(layer) for layer in layers))
    cuts = [len(layers) * i // stages for i in range(stages + 1)]
    end_case(writer, p, layers, [(list(range(a, b)), 40 * 10**9) for a, b in zip(cuts, cuts[1:])])


def record_models(writer):
    for name in MODELS:
        for model in engines(name):
            record_model(writer, model, 1)
        first = next(engines(name))
        record_model(writer, first, 3)
        record_model(writer, first, 1, hybrid=False)
        record_model(writer, first, 2, fit=False, length=4096)


# ---- random cases ------------------------------------------------------------


class Drawer:
    """Draws layers, workers and settings; what it draws often unifies, and sometimes does not."""

    def __init__(self, rng):
        self.rng = rng
        self.block = rng.choice([16, 16, 16, 32, 64, 1, 8, 24])
        self.heads = rng.choice([1, 2, 4, 8])
        self.size = rng.choice([64, 128, 128, 80, 256])
        self.mode = rng.randrange(3)
        self.spec_blocks = rng.choice([0, 0, 1, 3])
        self.quant = rng.choice([0, 0, 0, 0, 1, 2, 3, 4])
        self.dtype = 2 if self.quant == 0 else 8
        self.padded = rng.choice([0] * 9 + [40000])

    def heads_text(self, block=None):
        block = block or self.block
        text = f"b{block} h{self.heads} d{self.size} t{self.dtype}"
        text += f" q{self.quant}" if self.quant else ""
        if self.padded:
            text += f" p{make_spec(f'k{CROSS} {text}').page_size_bytes + self.padded}"
        return text

    def full(self):
        rng = self.rng
        text = f"k{FULL} {self.heads_text()}"
        if rng.random() < 0.1 and not self.padded:
            text += f" v{rng.choice([32, 64, 128])}"
        if rng.random() < 0.1:
            text += f" w{rng.choice([256, 256, 512])}"
        if rng.random() < 0.05:
            text += f" c{rng.choice([512, 1024])}"
        return text

    def swa(self):
        rng = self.rng
        text = f"k{SWA} {self.heads_text(rng.choice([None] * 6 + [self.block * 2]))}"
        return text + f" w{rng.choice([1, 100, 128, 128, 512, 4096])}"

    def local(self):
        return f"k{LOCAL} {self.heads_text()} c{self.rng.choice([64, 1000, 8192])}"

    def cross(self):
        return f"k{CROSS} {self.heads_text()}"

    def tq(self):
        return f"k{TQ} {self.heads_text()} u{self.rng.choice([0, 48, 96])}"

    def sink(self):
        return f"k{SINK} {self.heads_text()} n{self.block * self.rng.choice([1, 1, 2])}"

    def mla(self):
        rng = self.rng
        text = f"k{MLA} b{self.block} h1 d{rng.choice([576, 576, 576, 128])} t2"
        cache = rng.choice([0, 1, 1, 1, 3])
        text += f" m{cache}" if cache else ""
        text += f" v{rng.choice([64, 128])}" if rng.random() < 0.1 else ""
        return text + (f" a{rng.choice([512, 1000])}" if rng.random() < 0.2 else "")

    def swmla(self):
        """Without full latent layers beside it, as a whole model."""
        rng = self.rng
        text = f"k{SWMLA} b{self.block} h1 d{rng.choice([576, 128])} t2 w{rng.choice([128, 512])}"
        text += f" a{rng.choice([512, 1000])}" if rng.random() < 0.3 else ""
        return text + (" q1" if rng.random() < 0.2 else "")

    def mamba(self):
        """Padded to the attention page, mostly, as the engine does it."""
        rng = self.rng
        dims = f"{rng.choice([3, 4])},{rng.choice([256, 1024])}"
        states = f"z2:{dims} z{rng.choice([2, 3])}:{rng.choice([2, 4])},64,{rng.choice([16, 128])}"
        block = rng.choice([self.block, self.block, 4096])
        text = f"k{MAMBA} b{block} y{rng.choice([0, 0, 1, 4])} o{self.mode}"
        drafts = self.spec_blocks + (rng.random() < 0.1)
        text += f" x{drafts}" if drafts else ""
        page = make_spec(self.full_plain()).page_size_bytes
        needed = make_spec(f"{text} {states}").page_size_bytes
        if rng.random() < 0.85 and needed <= page:
            text += f" p{page}"
        elif rng.random() < 0.7:
            text += f" p{-(-needed // page) * page}"
        return f"{text} {states}"

    def full_plain(self):
        return f"k{FULL} {self.heads_text()}"

    def v4(self):
        """DeepSeek V4: latent layers of two ratios, window layers, index, compressors' states."""
        rng = self.rng
        full = rng.choice([256, 256, 256, 128])
        version = " e1" if rng.random() < 0.85 else ""
        cache = rng.choice([3, 3, 3, 3, 1])
        common = f"h1 d512 t8 m{cache}{version} a{rng.choice([576, 576, 576, 512])}"
        state = "h1 t3 a576"
        texts = [f"k{MLA} b{full} {common} r4", f"k{MLA} b{full} {common} r128",
                 f"k{MLA} b{full} h1 d132 t8 a576 r4", f"k{SWMLA} b64 {common} w128",
                 f"k{SWMLA} b4 {state} d2048 w8", f"k{SWMLA} b4 {state} d512 w8",
                 f"k{SWMLA} b8 {state} d{rng.choice([1024, 1024, 2048])} w128"]
        fours, others = rng.randint(1, 9), rng.randint(0, 9)
        counts = [fours, others, fours, fours + others, fours, fours, others]
        if rng.random() < 0.3:
            which = rng.randrange(len(counts))
            counts[which] = max(0, counts[which] + rng.choice([1, -1, 3]))
        places = [i for i, n in enumerate(counts) for _ in range(n)]
        if rng.random() < 0.7:
            rng.shuffle(places)
        if rng.random() < 0.08:
            texts.append(f"k{FULL} b{full} h1 d128 t2")
            places.append(len(texts) - 1)
        return texts, places

    def chaos(self):
        rng = self.rng
        makers = [self.full, self.swa, self.local, self.mla, self.mamba, self.cross, self.tq,
                  self.sink]
        texts = []
        for _ in range(rng.randint(1, 4)):
            texts.append(rng.choice(makers)())
            self.heads = rng.choice([self.heads, self.heads, 2 * self.heads])
        return texts

    def mix(self):
        """A model: specs, and which of them each layer has."""
        rng = self.rng
        shape = rng.random()
        if shape < 0.18:
            return self.v4()
        if shape < 0.30:
            maker = rng.choice([self.full, self.swa, self.local, self.mla, self.mamba, self.cross,
                                self.tq, self.sink, self.swmla])
            texts = [maker() for _ in range(rng.choice([1, 1, 2]))]
        elif shape < 0.45:
            texts = [self.full_plain(), self.swa()]
        elif shape < 0.55:
            texts = [self.full_plain(), self.swa(), self.swa()]
        elif shape < 0.62:
            texts = [self.full_plain(), self.local()]
        elif shape < 0.75:
            texts = [self.full_plain(), self.mamba()]
        elif shape < 0.80:
            texts = [self.mla(), self.mla()]
        elif shape < 0.84:
            texts = [self.full_plain(), self.cross()]
        elif shape < 0.86:
            texts = [f"k{SWA} b{self.block} h1 d128 t2 w128",
                     f"k{SWMLA} b{self.block} h1 d128 t2 w128"]
        else:
            texts = self.chaos()
        return texts, self.place(len(texts))

    def place(self, num_specs):
        rng = self.rng
        if rng.random() < 0.02:
            return []
        if rng.random() < 0.5:
            pattern = [i for i in range(num_specs) for _ in range(rng.choice([1, 1, 2, 3, 5]))]
            return (pattern * rng.randint(1, 8))[:rng.randint(1, 40)]
        return [rng.randrange(num_specs) for _ in range(rng.randint(1, 14))]

    def settings(self):
        rng = self.rng
        some = rng.random
        length = rng.choice([1, 17, 1000, 4096, 8192, 32768, 131072, 1000003])
        parallel = some() < 0.08
        return SimpleNamespace(
            length=length, step=rng.choice([1, 512, 2048, 8192, length]),
            encoder=rng.choice([1, 1500, 448]), fit=some() < 0.25, hybrid=some() > 0.2,
            eagle=some() < 0.4, override=rng.choice([1, 7, 1000, 12345]) if some() < 0.12 else 0,
            dcp=rng.choice([1, 2, 4]) if parallel else 1,
            pcp=rng.choice([1, 2, 3]) if parallel else 1,
            block=rng.choice([0, 0, 0, self.block]),
            hash=rng.choice([1, 4, 16, 48]) if some() < 0.1 else 0, caching=some() < 0.8,
            connector=some() < 0.2, mamba_mode=self.mode)

    def workers(self, p, texts, places):
        """One worker, or the stages of a pipeline, sometimes twice; memory around what is needed."""
        rng = self.rng
        n = len(places)
        stages = min(n, rng.choice([1, 1, 1, 2, 3, 4])) or 1
        cuts = sorted(rng.sample(range(1, n), stages - 1)) if n > 1 else []
        lists = [list(range(a, b)) for a, b in zip([0, *cuts], [*cuts, n])]
        if stages > 1 and rng.random() < 0.15:
            ids = list(range(n))
            rng.shuffle(ids)
            lists = [ids[i::stages] for i in range(stages)]
        if rng.random() < 0.15:
            lists = [ids for ids in lists for _ in range(2)]
        one = make_config(p)
        one.parallel_config.decode_context_parallel_size = 1
        usual = sum(make_spec(texts[i]).max_memory_usage_bytes(one) for i in places)
        factor = rng.choice([0, 0.01, 0.2, 0.5, 0.95, 1, 1.05, 1.3, 2, 2, 5, 5, 20, 20, 100])
        if factor == 0 and p.dcp > 1:
            factor = 3
        memory = int(usual / stages * factor) if rng.random() < 0.9 else 10**11
        return [(ids, max(memory + rng.randint(0, memory // 10 + 1), int(p.dcp > 1)))
                for ids in lists]


def record_plan(writer, rng, count, edges):
    """Random plans; the known models too, when asked for edges."""
    if edges:
        record_models(writer)
    for _ in range(count):
        drawer = Drawer(rng)
        texts, places = drawer.mix()
        p = drawer.settings()
        write_case(writer, p, texts, places, drawer.workers(p, texts, places))
