#include "image_forge.h"

#include "hash/digest.h"
#include "sched/image/image.h"

enum { HEAD_BYTES = 56, CHECKSUM_BYTES = 16, MAX_FIELDS = 1 << 20 };

/* ---- fields ---------------------------------------------------------------- */

static forge_field noted[MAX_FIELDS];
static uint32_t num_noted;

static void note_field(size_t at, size_t n)
{
    if (num_noted < MAX_FIELDS)
        noted[num_noted++] = (forge_field){(uint32_t)at, (uint32_t)n};
}

static void add_edge(forge_image *image, uint64_t value)
{
    image->edges[image->num_edges++] = (uint32_t)value;
}

void forge_open(forge_image *image, world *w)
{
    quire_sched *s = w->sides[0].sched;
    *image = (forge_image){0};
    image->bytes = world_save(w, 0, &image->size);
    unsigned char *again = malloc(image->size);
    assert_non_null(again);
    num_noted = 0;
    qr_image writer = {
        .out = again, .used = HEAD_BYTES, .version = QR_IMAGE_VERSION, .on_field = note_field};
    qr_image_walk(&writer, s);
    assert_int_equal(writer.used + CHECKSUM_BYTES, image->size);
    free(again);
    image->num_fields = num_noted;
    image->fields = malloc(num_noted * sizeof *noted);
    assert_non_null(image->fields);
    memcpy(image->fields, noted, num_noted * sizeof *noted);
    add_edge(image, s->settings.max_requests);
    add_edge(image, s->settings.max_num_seqs);
    add_edge(image, s->settings.max_model_len);
    add_edge(image, s->cache->pool->queue.num_blocks);
    add_edge(image, s->cache->max_requests);
    add_edge(image, s->settings.num_spec_tokens);
    add_edge(image, s->settings.max_batches);
    add_edge(image, s->settings.max_finished);
    add_edge(image, s->flight.step);
    add_edge(image, s->texts.store.max_pages);
    add_edge(image, s->settings.max_request_bytes);
    add_edge(image, s->swap.num_slots);
    add_edge(image, s->pins.max_pins);
    add_edge(image, s->encoder.config.cache_size);
}

void forge_close(forge_image *image)
{
    free(image->bytes);
    free(image->fields);
}

/* ---- changes --------------------------------------------------------------- */

static const forge_field *draw_field(const forge_image *image, uint64_t *random)
{
    return &image->fields[unit_random_below(random, image->num_fields)];
}

/* A number of the field: of 1, 4 or 8 bytes, as it is aligned. */
static forge_field draw_number(const forge_image *image, uint64_t *random)
{
    forge_field f = *draw_field(image, random);
    if (f.n <= 4 || (f.n == 8 && unit_random_below(random, 4) != 0))
        return f;
    uint32_t size = f.n % 8 == 0 && unit_random_below(random, 4) == 0 ? 8 : f.n % 4 == 0 ? 4 : 1;
    f.at += unit_random_below(random, f.n / size) * size;
    f.n = size;
    return f;
}

static uint64_t read_number(const unsigned char *from, forge_field f)
{
    uint64_t value = 0;
    memcpy(&value, from + f.at, f.n < sizeof value ? f.n : sizeof value);
    return value;
}

static void write_number(unsigned char *to, forge_field f, uint64_t value)
{
    memcpy(to + f.at, &value, f.n < sizeof value ? f.n : sizeof value);
}

static uint64_t draw_value(const forge_image *image, uint64_t old, uint64_t *random)
{
    uint64_t edge = image->edges[unit_random_below(random, image->num_edges)];
    switch (unit_random_below(random, 12)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return UINT64_MAX;
    case 3:
        return UINT64_MAX - 1;
    case 4:
        return INT32_MAX;
    case 5:
        return old + 1;
    case 6:
        return old - 1;
    case 7:
        return edge + unit_random_below(random, 3) - 1;
    case 8:
        return unit_random_below(random, (uint32_t)(edge < UINT32_MAX ? edge + 1 : edge));
    case 9:
        return unit_random_below(random, 8);
    case 10:
        return read_number(image->bytes, draw_number(image, random));
    default:
        return (old & ~UINT64_C(0xffffffff)) | (uint32_t)unit_random(random);
    }
}

static void swap_bytes(unsigned char *bytes, uint32_t a, uint32_t b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        unsigned char kept = bytes[a + i];
        bytes[a + i] = bytes[b + i];
        bytes[b + i] = kept;
    }
}

/* Two fields of the same size change places, or two parts of one array. */
static void swap_fields(const forge_image *image, unsigned char *to, uint64_t *random, char *what,
                        size_t room)
{
    const forge_field *a = draw_field(image, random);
    const forge_field *b = draw_field(image, random);
    if (a->n >= 8 && unit_random_below(random, 2) == 0) { /* of one array */
        uint32_t n = a->n / 8 * 4;
        swap_bytes(to, a->at, a->at + n, n);
        snprintf(what, room, "halves of [%u, +%u) swapped; ", a->at, a->n);
        return;
    }
    for (uint32_t tries = 0; tries < 64 && (b->n != a->n || b == a); tries++)
        b = draw_field(image, random);
    if (b->n != a->n || a == b)
        return;
    swap_bytes(to, a->at, b->at, a->n);
    snprintf(what, room, "[%u, +%u) and [%u, +%u) swapped; ", a->at, a->n, b->at, b->n);
}

static void change_once(const forge_image *image, unsigned char *to, uint64_t *random, char *what,
                        size_t room)
{
    uint32_t kind = unit_random_below(random, 8);
    forge_field f = draw_number(image, random);
    if (kind == 0) { /* any byte */
        f.at += unit_random_below(random, f.n);
        f.n = 1;
        to[f.at] ^= (unsigned char)(1 + unit_random_below(random, 255));
    } else if (kind == 1) {
        swap_fields(image, to, random, what, room);
        return;
    } else {
        write_number(to, f, draw_value(image, read_number(to, f), random));
    }
    snprintf(what, room, "[%u, +%u) was %llu, is %llu; ", f.at, f.n,
             (unsigned long long)read_number(image->bytes, f),
             (unsigned long long)read_number(to, f));
}

void forge_change(const forge_image *image, unsigned char *to, uint64_t *random, char *what,
                  size_t room)
{
    static const uint32_t NUM_CHANGES[] = {1, 1, 1, 1, 2, 2, 3};
    uint32_t n = NUM_CHANGES[unit_random_below(random, COUNT(NUM_CHANGES))];
    what[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        size_t used = strlen(what);
        change_once(image, to, random, what + used, room - used);
    }
    qr_xxh3_128(to, image->size - CHECKSUM_BYTES, to + image->size - CHECKSUM_BYTES);
}
