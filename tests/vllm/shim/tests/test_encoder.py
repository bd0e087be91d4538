"""EncoderCacheManager: the same state as vLLM's after any operations, and clear exceptions."""
import importlib
import random

import pytest
import vllm_kit


@pytest.fixture(scope="module")
def modules(request):
    """vLLM's module and ours."""
    vllm_kit.need_vllm(request.config)
    return (importlib.import_module("vllm.v1.core.encoder_cache_manager"),
            importlib.import_module("quire_shim.encoder_cache_manager"))


class Feature:
    def __init__(self, identifier):
        self.identifier = identifier


class Request:
    """With the images of these numbers; an image always has the same size."""

    def __init__(self, request_id, images):
        self.request_id = request_id
        self.images = images
        self.mm_features = [Feature(f"image-é-{image}" + "x" * (image % 90)) for image in images]

    def get_num_encoder_embeds(self, input_id):
        return 1 + self.images[input_id] % 7


def state(manager):
    names = ("cache_size", "num_free_slots", "num_freeable_slots", "cached", "freeable", "freed",
             "allocated", "to_free")
    found = {name: getattr(manager, name) for name in names if hasattr(manager, name)}
    return {**found, "freeable": list(found.get("freeable", {}).items())}


def step(managers, request, random_, is_shared):
    """One random call on both; their answers."""
    index = random_.randrange(len(request.images))
    kind = random_.choice(["schedule"] * 6 + ["free_input"] * 2 + ["free", "inputs", "freed"])
    if random_.random() < 0.01:
        kind = "reset"
    budget, scheduled = random_.choice([0, 5, 10_000, 1 << 40]), random_.choice([0, 0, 3])
    answers = []
    for manager in managers:
        if kind == "schedule":
            answer = manager.check_and_update_cache(request, index)
            if not answer:
                answer = manager.can_allocate(request, index, budget, scheduled), None
                if answer[0]:
                    manager.allocate(request, index)
        elif kind == "free_input" and is_shared:
            answer = manager.free_encoder_input(request, index)
        elif kind == "free":
            answer = manager.free(request)
        elif kind == "inputs":
            answer = manager.get_cached_input_ids(request)
        elif kind == "freed":
            answer = manager.get_freed_mm_hashes()
        else:
            answer = manager.reset() if kind == "reset" else None
        answers.append(answer)
    return answers


@pytest.mark.parametrize("name", ["EncoderCacheManager", "EncoderDecoderCacheManager"])
@pytest.mark.parametrize("seed", range(8))
def test_the_state_is_vllms(modules, name, seed):
    random_ = random.Random(seed)
    size = random_.choice([20, 200, 3000])
    managers = [getattr(module, name)(size) for module in modules]
    requests = [Request(f"request {i}", random_.sample(range(4 * size), random_.randint(1, 12)))
                for i in range(size)]
    for i in range(600):
        theirs, ours = step(managers, random_.choice(requests), random_,
                            name == "EncoderCacheManager")
        assert theirs == ours, i
        theirs, ours = map(state, managers)
        assert theirs == {field: ours[field] for field in theirs}, i


def test_misuse(modules):
    manager = modules[1].EncoderCacheManager(cache_size=4)
    small, large = Request("a", [2]), Request("b", [6])
    manager.allocate(small, 0)
    with pytest.raises(ValueError, match="check_and_update_cache"):
        manager.allocate(small, 0)
    with pytest.raises(AssertionError, match="7 embeddings"):
        manager.allocate(large, 0)
    with pytest.raises(IndexError):
        manager.allocate(small, 7)
    with pytest.raises(AttributeError):
        manager.allocate(object(), 0)
    with pytest.raises(TypeError, match="request_id must be a str"):
        manager.allocate(Request(7, [2]), 0)
    with pytest.raises(AttributeError, match="only"):
        manager.cached = {"image": set()}
    for wrong in (-1, 1 << 40):
        with pytest.raises(ValueError, match="embeddings"):
            modules[1].EncoderCacheManager(wrong)
    with pytest.raises(TypeError):
        modules[1].EncoderCacheManager("large")
    assert manager.cached == {small.mm_features[0].identifier: {"a"}}
    manager.cached = {}
    assert manager.cached == {} and manager.num_free_slots == 1


def test_a_request_that_changes_the_cache_while_it_is_asked(modules):
    manager = modules[1].EncoderCacheManager(cache_size=10)

    class Nosy(Request):
        def get_num_encoder_embeds(self, input_id):
            if manager.cached:
                manager.reset()
            return 3

    request = Nosy("a", [1])
    manager.allocate(request, 0)
    manager.free_encoder_input(request, 0)
    manager.free(request)
    assert manager.num_free_slots == 10 and not manager.cached


def test_one_that_was_never_made(modules):
    manager = modules[1].EncoderCacheManager.__new__(modules[1].EncoderCacheManager)
    with pytest.raises(ValueError, match="not initialised"):
        manager.allocate(Request("a", [1]), 0)
    assert manager.freeable == {} and manager.get_freed_mm_hashes() == []
