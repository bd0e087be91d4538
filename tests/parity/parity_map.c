/* parity/parity_map.c - Quire's map from keys to blocks against vLLM's BlockHashToBlockMap.
 *
 *      map 8             blocks 1..7; 0 is never stored
 *      i 3 F D L G       insert block 3 under the key (digest of family F and depth D, L bytes; G)
 *      p 3               pop block 3: does another block still have its key?
 *      g F D L G         the block that is found, 0 for none
 *      c 3 F D L G       does block 3 have this key (0.32)
 *      u F N L G         the blocks of depths 0..N-1, up to the first that is not found
 *
 * After each operation the number of keys and the blocks of every key, in order, are compared.
 */
#include "block/map.h"
#include "parity/recording.h"
#include "parity/stream.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_BLOCKS = 256, MAX_RUN = 8, STRIDE = 64 };

static const char *path;

typedef struct map_case {
    recording r;
    qr_map map;
    qr_block blocks[MAX_BLOCKS];
    void *memory;
} map_case;

static void start_case(map_case *c)
{
    uint32_t size = recording_u32(&c->r);
    recording_expect(&c->r, size <= MAX_BLOCKS, "map fits");
    qr_arena plan = qr_arena_plan();
    qr_map_carve(&c->map, &plan, size, STRIDE);
    free(c->memory);
    size_t bytes = (plan.used + QUIRE_ALIGNMENT - 1) / QUIRE_ALIGNMENT * QUIRE_ALIGNMENT;
    c->memory = aligned_alloc(QUIRE_ALIGNMENT, bytes);
    assert_non_null(c->memory);
    qr_arena arena = qr_arena_carve(c->memory, bytes);
    qr_map_carve(&c->map, &arena, size, STRIDE);
    memset(c->blocks, 0, sizeof c->blocks);
    const uint64_t secret[2] = {c->r.line_number, ~c->r.line_number};
    qr_map_init(&c->map, c->blocks, false, secret);
    recording_start_case(&c->r);
}

/* Reads "F D L G"; hashes takes those of depths D to D + count - 1. */
static qr_key read_key(map_case *c, unsigned char *hashes, bool is_run, uint32_t *count)
{
    uint32_t family = recording_u32(&c->r);
    uint32_t depth = recording_u32(&c->r);
    uint32_t len = recording_u32(&c->r);
    uint32_t group = recording_u32(&c->r);
    *count = is_run ? depth : 1;
    recording_expect(&c->r, len <= STRIDE && *count <= MAX_RUN, "keys fit");
    for (uint32_t i = 0; i < *count; i++)
        stream_digest(family, is_run ? i : depth, hashes + (size_t)i * len, len);
    return (qr_key){hashes, len, group};
}

static void run_operation(map_case *c, char op)
{
    unsigned char hashes[MAX_RUN * STRIDE];
    uint32_t found[MAX_RUN];
    uint32_t count;
    recording *r = &c->r;
    uint32_t block = op == 'i' || op == 'p' || op == 'c' ? recording_u32(r) : 0;
    if (op == 'p') {
        text_add(&r->answer, "p=%d", (int)qr_map_remove(&c->map, block));
        return;
    }
    qr_key key = read_key(c, hashes, op == 'u', &count);
    if (op == 'i') {
        qr_map_insert(&c->map, key, block);
        text_add(&r->answer, "i");
    } else if (op == 'c') {
        text_add(&r->answer, "c=%d", (int)qr_map_has_key(&c->map, block, key));
    } else if (op == 'g') {
        text_add(&r->answer, "g=%u", qr_map_get(&c->map, key));
    } else {
        recording_expect(r, op == 'u', "operation is known");
        text_add(&r->answer, "u=");
        text_add_ids(&r->answer, found, qr_map_get_run(&c->map, key, count, found, 1));
    }
}

static void check_state(map_case *c)
{
    recording *r = &c->r;
    const qr_block *blocks = c->blocks;
    bool is_first_key = true;
    recording_expect(r, qr_map_is_valid(&c->map), "map is valid");
    text_add(&r->answer, "|%u|", c->map.index.used);
    for (uint32_t first = 1; first < c->map.num_blocks; first++) {
        if (!blocks[first].is_first)
            continue;
        text_add(&r->answer, is_first_key ? "%u" : " %u", first);
        is_first_key = false;
        for (uint32_t b = blocks[first].dup_next; b != first; b = blocks[b].dup_next)
            text_add(&r->answer, ">%u", b);
    }
    recording_check_answer(r);
}

static void map_answers_as_vllm(void **state)
{
    (void)state;
    static map_case c;
    recording_open(&c.r, path, "map");
    while (recording_next(&c.r)) {
        const char *op = recording_word(&c.r);
        if (strcmp(op, "map") == 0) {
            start_case(&c);
        } else if (strcmp(op, "end") == 0) {
            recording_check_case(&c.r);
        } else {
            run_operation(&c, op[0]);
            check_state(&c);
        }
    }
    recording_close(&c.r);
    free(c.memory);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/map.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(map_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_map", tests, NULL, NULL);
}
