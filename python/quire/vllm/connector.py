"""Connectors of vLLM's, as the core calls them: the same calls with the same objects."""
from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA


def calls_of(scheduler) -> dict:
    """What the core calls, of the connector that the scheduler has at that moment; nothing without
    one."""
    if scheduler.connector is None:
        return {}

    def alloc(request, num_external):
        blocks = scheduler.kv_cache_manager.get_blocks(request.request_id)
        scheduler.connector.update_state_after_alloc(request, blocks, num_external)

    def meta(output):
        output.kv_connector_metadata = scheduler.connector.build_connector_meta(output)

    def finished(request, block_ids):
        if isinstance(scheduler.connector, SupportsHMA):
            return scheduler.connector.request_finished_all_groups(request, block_ids)
        assert len(block_ids) == 1
        return scheduler.connector.request_finished(request, block_ids[0])

    def match(request, num_local, _part):
        return tuple(scheduler.connector.get_num_new_matched_tokens(request, num_local))

    def told():
        """The requests that were received: update_connector_output may change them, as in vLLM."""
        report = scheduler._report
        if report is None:
            return None
        scheduler.connector.update_connector_output(report)
        return [scheduler.requests[name]._quire[1] for name in report.finished_recving or ()]

    def reset():
        return False if scheduler._is_reset_refused() else scheduler.connector.reset_cache()

    return {"told": told, "match": match, "alloc": alloc, "meta": meta, "finished": finished,
            "reset": reset}


def image_calls_of(scheduler) -> dict:
    """The same for an encoder connector."""
    if scheduler.ec_connector is None:
        return {}

    def has_image(request, index):
        return scheduler.ec_connector.has_cache_item(request.mm_features[index].identifier)

    def alloc(request, index):
        scheduler.ec_connector.update_state_after_alloc(request, index)

    def meta(output):
        output.ec_connector_metadata = scheduler.ec_connector.build_connector_meta(output)

    return {"has_image": has_image, "image_alloc": alloc, "image_meta": meta}
