#include "sched/encoder/encoder_kit.h"

enum { MAX_TEXT = 4096 };

void kit_init(encoder_kit *kit, qr_encoder_config config)
{
    config.max_identifier_bytes = KIT_ID_BYTES;
    config.max_features = KIT_MAX_FEATURES;
    qr_arena plan = qr_arena_plan();
    qr_encoder_carve(&kit->encoder, &plan, &config);
    assert_true(plan.used <= KIT_ROOM);
    qr_arena arena = qr_arena_carve(kit->memory, plan.used);
    qr_encoder_carve(&kit->encoder, &arena, &config);
    qr_encoder_init(&kit->encoder, 11, 22);
    assert_true(qr_encoder_is_valid(&kit->encoder));
}

qr_feature kit_feature(const char *identifier, uint32_t offset, uint32_t length)
{
    return (qr_feature){.identifier = {identifier, strlen(identifier)},
                        .offset = offset,
                        .length = length,
                        .num_embeds = length};
}

enum { CHUNKS = 8 };
static qr_flag_chunk chunks[CHUNKS];
static const qr_flag_chain the_chain = {.first = 0, .num_chunks = CHUNKS};

const qr_flag_store *kit_flags(void)
{
    static const qr_flag_store store = {
        .chunks = chunks, .num_chunks = CHUNKS, .first_free = QR_NIL};
    return &store;
}

const qr_flag_chain *kit_chain(void)
{
    return &the_chain;
}

void kit_set_flags(qr_feature *feature, const uint8_t *flags, uint32_t n)
{
    qr_flag_store store = *kit_flags();
    for (uint32_t i = 0; i < CHUNKS; i++)
        chunks[i] = (qr_flag_chunk){.next = i + 1 < CHUNKS ? i + 1 : QR_NIL};
    feature->has_flags = true;
    feature->first_flag = 61; /* so that they lie in two words */
    qr_flags_write(&store, &the_chain, feature->first_flag, flags, n);
}

static void append(char *text, const void *data, size_t len)
{
    size_t used = strlen(text);
    assert_true(used + len + 2 < MAX_TEXT);
    if (used > 0)
        text[used++] = ' ';
    memcpy(text + used, data, len);
    text[used + len] = '\0';
}

void kit_expect_freed(encoder_kit *kit, const char *identifiers)
{
    char text[MAX_TEXT] = "";
    const quire_bytes *freed;
    uint32_t n = qr_encoder_take_freed(&kit->encoder, &freed);
    for (uint32_t i = 0; i < n; i++)
        append(text, freed[i].data, freed[i].len);
    assert_string_equal(text, identifiers);
    assert_true(qr_encoder_is_valid(&kit->encoder));
}

void kit_expect_unused(const encoder_kit *kit, const char *identifiers)
{
    char text[MAX_TEXT] = "";
    const qr_encoder *e = &kit->encoder;
    uint32_t slot = e->items[e->num_slots].link.next;
    for (; slot != e->num_slots; slot = e->items[slot].link.next)
        append(text, e->names + (size_t)slot * KIT_ID_BYTES, e->items[slot].len);
    assert_string_equal(text, identifiers);
}

void kit_expect_room(const encoder_kit *kit, uint64_t num_free, uint64_t num_freeable)
{
    assert_true(qr_encoder_is_valid(&kit->encoder));
    assert_int_equal(kit->encoder.num_free, num_free);
    assert_int_equal(kit->encoder.num_freeable, num_freeable);
}

void kit_allocate(encoder_kit *kit, qr_feature *features, uint32_t i)
{
    assert_true(qr_encoder_can_allocate(&kit->encoder, &features[i], UINT32_MAX, 0, 0));
    assert_int_equal(qr_encoder_allocate(&kit->encoder, features, i), QUIRE_OK);
    assert_true(qr_encoder_is_valid(&kit->encoder));
}

uint64_t kit_num_uses(const qr_encoder *encoder)
{
    uint64_t uses = 0;
    for (uint32_t slot = 0; slot < encoder->num_slots; slot++)
        uses += encoder->items[slot].num_users;
    return uses;
}
