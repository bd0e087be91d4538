/* model/config_fuzz.h - configs with each field at its edges: an error, or a handle that works.
 * Tests for test_oom.c. */
#ifndef MODEL_CONFIG_FUZZ_H
#define MODEL_CONFIG_FUZZ_H

/* Each field at each of its values, the rest as in a valid config. */
void config_fuzz_single_fields(void **state);
/* Each two fields of a config at each pair of their values. */
void config_fuzz_pairs_of_fields(void **state);
/* A config of an older caller (shorter) and of a newer one (longer). */
void config_fuzz_size_field(void **state);

#endif
