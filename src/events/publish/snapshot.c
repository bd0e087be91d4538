#include "events/publish/snapshot.h"

#include "base/memory.h"
#include "events/publish/feed_wire.h"

/* Keys in one batch: few enough that a reader which stops reading holds little. */
enum { PIECE_KEYS = 2048 };

/* Where the making is: the next key comes after this block of this group. */
typedef struct whole_place {
    uint32_t group;
    quire_block block;
} whole_place;

int qr_snapshot_maker_init(qr_snapshot_maker *maker, uint32_t as_maps)
{
    quire_wire_options options = {.size = sizeof options, .as_maps = as_maps};
    maker->hashes = qr_alloc(PIECE_KEYS, sizeof *maker->hashes);
    if (maker->hashes == NULL)
        return QUIRE_E_NOMEM;
    return quire_wire_writer_create(&options, &maker->writer);
}

void qr_snapshot_maker_release(qr_snapshot_maker *maker)
{
    quire_wire_writer_destroy(maker->writer);
    qr_free(maker->hashes);
}

/* Takes up to PIECE_KEYS keys of one group. */
static quire_wire_event stored_piece(qr_snapshot_maker *maker, const qr_mirror *mirror,
                                     whole_place *place)
{
    quire_wire_event event = {.size = sizeof(quire_wire_event),
                              .kind = QUIRE_WIRE_STORED,
                              .hashes = maker->hashes,
                              .medium = maker->mediums[place->group / maker->num_groups],
                              .has_group = 1,
                              .group = place->group % maker->num_groups};
    qr_wire_set_spec(&event, maker->specs);
    while (event.num_hashes < PIECE_KEYS) {
        place->block = qr_mirror_next(mirror, place->block, place->group, maker->every_copy);
        if (place->block == 0) {
            place->group++;
            break;
        }
        qr_mirror_key key;
        (void)qr_mirror_get(mirror, place->block, &key);
        event.block_size = key.block_size;
        maker->hashes[event.num_hashes++] = qr_wire_hash_of(key.hash, maker->hashes_as_bytes != 0);
    }
    return event;
}

/* The next batch; the first one also has AllBlocksCleared. */
static int add_piece(qr_snapshot_maker *maker, qr_snapshot *whole, const quire_wire_event *stored,
                     double time, qr_budget *budget)
{
    quire_wire_event cleared = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    quire_bytes bytes;
    int status = quire_wire_begin(maker->writer);
    if (status == QUIRE_OK && whole->num_pieces == 0)
        status = quire_wire_add(maker->writer, &cleared);
    if (status == QUIRE_OK && stored->num_hashes > 0)
        status = quire_wire_add(maker->writer, stored);
    if (status == QUIRE_OK)
        status = quire_wire_end(maker->writer, time, maker->rank, &bytes);
    qr_payload *piece = status == QUIRE_OK ? qr_payload_create(budget, whole->number, bytes) : NULL;
    if (piece == NULL)
        return QUIRE_E_NOMEM;
    whole->pieces[whole->num_pieces++] = piece;
    return QUIRE_OK;
}

qr_snapshot *qr_snapshot_make(qr_snapshot_maker *maker, const qr_mirror *mirror, uint64_t number,
                              double time, qr_budget *budget)
{
    uint32_t num_groups = maker->num_groups * maker->num_tiers;
    size_t most = mirror->num_held / PIECE_KEYS + num_groups + 1;
    qr_snapshot *whole = qr_alloc(1, sizeof *whole + most * sizeof(void *));
    if (whole == NULL)
        return NULL;
    whole->number = number;
    whole_place place = {.group = 0};
    while (place.group < num_groups) {
        quire_wire_event stored = stored_piece(maker, mirror, &place);
        if (stored.num_hashes == 0 && whole->num_pieces > 0)
            continue;
        if (add_piece(maker, whole, &stored, time, budget) != QUIRE_OK) {
            qr_snapshot_destroy(whole);
            return NULL;
        }
    }
    return whole;
}

void qr_snapshot_destroy(qr_snapshot *whole)
{
    if (whole == NULL)
        return;
    for (uint32_t i = 0; i < whole->num_pieces; i++)
        qr_payload_drop(whole->pieces[i]);
    qr_free(whole);
}
