#include "events/wire/wire.h"

#define AT(member)    offsetof(quire_wire_event, member)
#define VALUE(member) AT(member), sizeof((quire_wire_event *)0)->member /* NOLINT: a pointer, too */

static const qr_wire_field stored[] = {
    {"block_hashes", QR_WIRE_HASHES, VALUE(hashes), 0, false, false},
    {"parent_block_hash", QR_WIRE_HASH, VALUE(parent), AT(has_parent), false, false},
    {"token_ids", QR_WIRE_TOKENS, VALUE(tokens), 0, false, false},
    {"block_size", QR_WIRE_U32, VALUE(block_size), 0, false, false},
    {"lora_id", QR_WIRE_I64, VALUE(lora_id), AT(has_lora_id), false, false},
    {"medium", QR_WIRE_TEXT_OR_NIL, VALUE(medium), 0, false, false},
    {"lora_name", QR_WIRE_TEXT_OR_NIL, VALUE(lora_name), 0, false, false},
    {"extra_keys", QR_WIRE_KEYS, VALUE(keys), 0, true, false},
    {"group_idx", QR_WIRE_U32, VALUE(group), AT(has_group), true, false},
    {"kv_cache_spec_kind", QR_WIRE_TEXT_OR_NIL, VALUE(spec_kind), 0, true, true},
    {"kv_cache_spec_sliding_window", QR_WIRE_U32, VALUE(sliding_window), AT(has_sliding_window),
     true, true},
    {"locality", QR_WIRE_TEXT_OR_NIL, VALUE(locality), 0, true, true},
    {"ownership", QR_WIRE_TEXT_OR_NIL, VALUE(ownership), 0, true, true},
    {"session_id", QR_WIRE_TEXT_OR_NIL, VALUE(session_id), 0, true, true},
};

static const qr_wire_field removed[] = {
    {"block_hashes", QR_WIRE_HASHES, VALUE(hashes), 0, false, false},
    {"medium", QR_WIRE_TEXT_OR_NIL, VALUE(medium), 0, false, false},
    {"group_idx", QR_WIRE_U32, VALUE(group), AT(has_group), true, false},
    {"locality", QR_WIRE_TEXT_OR_NIL, VALUE(locality), 0, true, true},
    {"ownership", QR_WIRE_TEXT_OR_NIL, VALUE(ownership), 0, true, true},
};

const qr_wire_shape qr_wire_shapes[QR_WIRE_NUM_SHAPES] = {
    {"BlockStored", QUIRE_WIRE_STORED, stored, sizeof stored / sizeof *stored, 4},
    {"BlockRemoved", QUIRE_WIRE_REMOVED, removed, sizeof removed / sizeof *removed, 1},
    {"AllBlocksCleared", QUIRE_WIRE_CLEARED, NULL, 0, 0},
};
