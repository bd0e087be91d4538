"""QuireConnector: host memory, files, Redis and object stores as tiers under vLLM's KV cache.

    options.py      what kv_connector_extra_config may have: one table
    sizes.py        bytes of a block, slots of the host pool, the planner's numbers
    scheduler.py    the scheduler half: a planner
    worker.py       the worker half: a slab, a device, tiers
    regions.py      where the pages of blocks lie in vLLM's tensors
    identity.py     what decides the meaning of a block's bytes
    metadata.py     what goes from one half to the other: bytes
    events.py, metrics.py
    connector.py    the class that vLLM makes
"""
