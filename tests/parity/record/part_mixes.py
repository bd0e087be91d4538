"""Mixes of vLLM 0.32 in which hits end inside a block (record.py --mixes parts).

That needs Mamba groups in mode "align" whose blocks have several hashes, and beside them groups that
can be cut there (full, MLA, other Mamba groups) or whose blocks have one hash. Some mixes have one
group that cannot be cut: then prompts still end inside blocks, but hits do not.
"""
from cache_mixes import Group


def state(d, scale=1, spec=None, mode=2):
    spec = d.rng.choice([0, 0, 1, 2, 3]) if spec is None else spec
    made = Group("S", d.size * scale, {"m": mode, "n": spec})
    if mode == 2 and d.rng.random() < 0.4:
        made.options["a"] = d.rng.choice([1, 1, 2, 3, 4, d.size])
    if d.rng.random() < 0.3:
        made.options["j"] = 1
    return made


def unit(rng, divisor):
    """Tokens under a hash: any divisor of the block sizes, not often all of it."""
    smaller = [n for n in range(1, divisor) if divisor % n == 0]
    return rng.choice(smaller) if smaller and rng.random() < 0.9 else divisor


def whole(_rng, divisor):
    return divisor


def larger(d):
    """Blocks of several hashes, whatever their number."""
    d.size = d.rng.choice([4, 6, 8, 8, 12, 16, 16])
    return d


def plain(d):
    larger(d)
    return [d.full(), state(d)]


def latent(d):
    larger(d)
    return [d.full("M"), state(d)]


def reversed_order(d):
    larger(d)
    return [state(d), d.full(h=2), d.full(h=2)]


def two_full(d):
    larger(d)
    return [d.full(c=4 * d.size), d.full(d.rng.choice("FM"), scale=d.rng.choice([1, 2]), h=2),
            state(d)]


def small_full(d):
    """Full blocks of one hash beside larger states."""
    scale = d.rng.choice([2, 3, 4])
    return [d.full(), state(d, scale)]


def small_state(d):
    larger(d)
    return [d.full(scale=d.rng.choice([2, 3])), state(d)]


def uneven(d):
    """Neither block size divides the other."""
    return [d.full(scale=2), state(d, 3)]


def states(d):
    larger(d)
    one = state(d)
    return [d.full()] + [Group("S", d.size, dict(one.options)) for _ in range(d.rng.randint(2, 3))]


def odd_states(d):
    """States of different sizes and modes."""
    larger(d)
    return [d.full(), state(d, spec=0), d.rng.choice([
        lambda: state(d, 2, spec=0), lambda: state(d, mode=0), lambda: state(d, spec=2)])()]


def no_full(d):
    larger(d)
    return [state(d, spec=0), state(d, d.rng.choice([1, 2]), spec=1)]


def with_window(d):
    """Windows with blocks of one hash take part; with larger ones no hit ends inside a block."""
    d.size = d.rng.choice([1, 2, 4, 4])
    scale = d.rng.choice([2, 4])
    return [d.full(scale=scale), state(d, scale), d.window(scale=d.rng.choice([1, 1, 2]))]


def with_chunks(d):
    d.size = d.rng.choice([2, 4])
    return [d.full(scale=2), state(d, 2), d.chunked()]


def flagged(d):
    groups = d.rng.choice([plain, two_full, small_full, with_window])(d)
    for i in d.rng.sample(range(len(groups)), d.rng.randint(1, 2)):
        groups[i].is_eagle = True
    return groups


def anything(d):
    return d.rng.choice([plain, latent, reversed_order, two_full, small_full, small_state, uneven,
                         states, odd_states, no_full, with_window])(d)


FINE = {"unit": unit}
ONE = {"unit": whole}

# name: (groups, settings that are not drawn)
CACHE = {
    "parts": (plain, FINE),
    "parts-roomy": (plain, {**FINE, "roomy": True}),
    "parts-mla": (latent, FINE),
    "parts-reversed": (reversed_order, FINE),
    "parts-2full": (two_full, FINE),
    "parts-small-full": (small_full, FINE),
    "parts-gcd": (small_full, ONE),
    "parts-small-state": (small_state, FINE),
    "parts-uneven": (uneven, ONE),
    "parts-states": (states, FINE),
    "parts-odd-states": (odd_states, FINE),
    "parts-no-full": (no_full, FINE),
    "parts-window": (with_window, ONE),
    "parts-window-eagle": (with_window, {**ONE, "eagle": True}),
    "parts-chunks": (with_chunks, {**ONE, "eagle": False}),
    "parts-eagle": (plain, {**FINE, "eagle": True}),
    "parts-eagle-roomy": (anything, {**FINE, "eagle": True, "roomy": True}),
    "parts-flagged": (flagged, FINE),
    "parts-modules": (plain, {**FINE, "eagle": True, "lookahead": True}),
    "parts-ranks": (plain, {**FINE, "parallel": True, "pcp": False}),
    "parts-any": (anything, FINE),
    "parts-align": (plain, ONE),
    "parts-align-eagle": (anything, {**ONE, "eagle": True}),
    "parts-one": (lambda d: [state(d)], {**ONE, "eagle": False}),
    "parts-one-eagle": (lambda d: [state(d)], {**ONE, "eagle": True}),
}




# ---- schedulers ------------------------------------------------------------------


def drafted(make):
    """As many blocks for drafts in each state as the model has drafts."""
    def groups(d):
        made = make(d)
        for group in made:
            if group.kind == "S":
                group.options["n"] = d.drafts
        return made
    return groups


BASE = {**FINE, "mamba": True}
PLAIN = {**BASE, "groups": drafted(plain)}
ANY = {**BASE, "groups": drafted(anything)}
ASYNC = {"is_async": True}
DEEP = {"is_async": True, "depth": 3}
EAGLE = {"spec": (1, 4), "eagle": True}
NGRAM = {"spec": (1, 4), "eagle": False}
TIGHT = {"room": [0.9, 1.1, 1.3]}
LOADS = {"connector": True, "loads": 0.5, "loads_later": 0.0, "asks_again": 0.0}
LATER = {"connector": True, "loads": 0.5, "loads_later": 0.8, "asks_again": 0.1}

SCHED = {
    "parts": {**PLAIN},
    "parts-tight": {**PLAIN, **TIGHT},
    "parts-mla": {**BASE, "groups": drafted(latent)},
    "parts-2full": {**BASE, "groups": drafted(two_full)},
    "parts-small-full": {**BASE, "groups": drafted(small_full), **ONE},
    "parts-states": {**BASE, "groups": drafted(states)},
    "parts-no-full": {**BASE, "groups": drafted(no_full)},
    "parts-window": {**BASE, "groups": drafted(with_window), **ONE},
    "parts-any": {**ANY},
    "parts-priority": {**PLAIN, **TIGHT, "priority": True},
    "parts-async": {**PLAIN, **ASYNC},
    "parts-async-tight": {**ANY, **ASYNC, **TIGHT},
    "parts-deep": {**PLAIN, **DEEP},
    "parts-eagle": {**PLAIN, **EAGLE},
    "parts-eagle-any": {**ANY, **EAGLE},
    "parts-eagle-async": {**PLAIN, **EAGLE, **ASYNC, **TIGHT},
    "parts-ngram": {**ANY, **NGRAM},
    "parts-modules": {**PLAIN, "spec": (2, 4), "eagle": True, "modules": True},
    "parts-ranks": {**PLAIN, "parallel": True},
    "parts-resets": {**PLAIN, **ASYNC, "resets": 0.2, "aborts": 0.05},
    "parts-sessions": {**PLAIN, "sessions": 0.5},
    "parts-images": {**PLAIN, "images": 0.6},
    "parts-loads": {**PLAIN, **LOADS},
    "parts-later": {**PLAIN, **LATER},
    "parts-later-any": {**ANY, **LATER, **ASYNC},
    "parts-losses": {**PLAIN, **LATER, **ASYNC, "losses": 0.3},
    "parts-fences": {**PLAIN, **LATER, **DEEP, **TIGHT, "sends": 0.4, "fences": True},
    "parts-fences-eagle": {**PLAIN, **LATER, **ASYNC, **EAGLE, "fences": True},
    "parts-whole": {**PLAIN, "chunked": False},
    "parts-align": {**PLAIN, **ONE},
}
