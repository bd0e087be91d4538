"""Every name that vLLM's tests take has a stand-in, and substitute() puts it everywhere."""
import importlib
import sys

import vllm_kit

SHARED = {"KVCacheBlocks"}  # lists of blocks and nothing else: vLLM's own class serves


def test_every_name_has_a_stand_in(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    import quire_shim

    for name, modules in quire_shim.PLACES.items():
        theirs, ours = (getattr(importlib.import_module(module), name) for module in modules)
        assert (ours is theirs) == (name in SHARED), name
        assert callable(ours) == callable(theirs), name


def test_substitute_and_back(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    import quire_shim

    users = [importlib.import_module(name) for name in
             ("vllm.v1.core.sched.scheduler", "vllm.v1.core.kv_cache_manager",
              "vllm.v1.engine.core")]
    before = [dict(vars(module)) for module in users]
    with quire_shim.substitute() as done:
        assert set(done.names) == set(quire_shim.PLACES) - SHARED
        for name, (theirs, ours) in quire_shim.PLACES.items():
            value = getattr(sys.modules[ours], name)
            assert getattr(sys.modules[theirs], name) is value
            for module, old in zip(users, before):
                assert name not in old or vars(module)[name] is value, (module, name)
        assert quire_shim.substitute().names == ()
    for module, old in zip(users, before):
        assert all(vars(module)[name] is value for name, value in old.items())
