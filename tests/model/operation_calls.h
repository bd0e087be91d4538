/* model/operation_calls.h - carries out one operation. Read twice by operation.c, with POOL, CALL
 * and ON_POOL naming the real pool or the naive one; so it has no include guard. */

void ON_POOL(const operation *op, POOL *pool, op_result *result)
{
    arguments args;
    make_arguments(op, &args);
    memset(result, PATTERN, sizeof *result);
    quire_block *out = op->nulls & NULL_OUT ? NULL : result->blocks;
    if (op->nulls & NULL_POOL)
        pool = NULL;
    quire_cache_full_params params = cache_params(op, &args);
    quire_block_info info;
    result->status = QUIRE_OK;
    switch (op->kind) {
    case OP_GET_NEW:
        result->status = CALL(get_new_blocks)(pool, op->num, out);
        break;
    case OP_TOUCH:
        result->status = CALL(touch)(pool, args.blocks, op->num);
        break;
    case OP_FREE:
        result->status = CALL(free_blocks)(pool, args.blocks, op->num);
        break;
    case OP_HOLD:
        result->status = CALL(hold)(pool, args.blocks, op->num);
        break;
    case OP_LET_GO:
        result->status = CALL(let_go)(pool, args.blocks, op->num, op->first);
        break;
    case OP_CACHE:
        result->status = CALL(cache_full_blocks)(pool, op->nulls & NULL_OUT ? NULL : &params);
        break;
    case OP_EVICT:
        result->status = CALL(evict_blocks)(pool, args.blocks, op->num);
        break;
    case OP_RESET:
        result->status = CALL(reset_prefix_cache)(pool);
        break;
    case OP_GET_CACHED:
        result->status = CALL(get_cached_block)(pool, (quire_bytes){args.hashes, op->hash_len},
                                                args.groups, op->num_groups, out);
        break;
    case OP_GET_PREFIX:
        result->status =
            CALL(get_cached_prefix)(pool, args.hashes, op->hash_len, op->num_hashes, args.groups,
                                    op->num_groups, out, out != NULL ? &result->count : NULL);
        break;
    case OP_INFO:
        result->status = CALL(get_block)(pool, op->num, out != NULL ? &info : NULL);
        if (result->status == QUIRE_OK)
            info_to_result(&info, result);
        break;
    case OP_FREE_LIST:
        result->count = CALL(get_all_free_blocks)(pool, out, op->num);
        break;
    case OP_NEXT_FREE:
        result->count = CALL(get_next_free)(pool, op->num);
        break;
    case OP_DRAW:
        result->status = CALL(draw)(pool, op->first, op->num, out != NULL ? result->text : NULL);
        break;
    case OP_NUM_KINDS:
        break;
    }
}
