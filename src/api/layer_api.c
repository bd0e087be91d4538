/* api/layer_api.c - quire/layer.h: argument checks, then one call inward. */
#include "group/spec.h"

int quire_layer_check(const quire_layer_spec *spec)
{
    return spec == NULL ? QUIRE_E_ARGUMENT : qr_spec_check(spec);
}

uint64_t quire_layer_real_page_bytes(const quire_layer_spec *spec)
{
    return spec == NULL ? 0 : qr_spec_real_page_bytes(spec);
}

uint64_t quire_layer_page_bytes(const quire_layer_spec *spec)
{
    return spec == NULL ? 0 : qr_spec_page_bytes(spec);
}

int quire_layer_equal(const quire_layer_spec *a, const quire_layer_spec *b)
{
    if (a == NULL || b == NULL || qr_spec_check(a) != QUIRE_OK || qr_spec_check(b) != QUIRE_OK)
        return 0;
    return qr_spec_equal(a, b);
}

int quire_layer_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                      quire_layer_spec *merged)
{
    if (specs == NULL || num_specs == 0 || merged == NULL)
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < num_specs; i++) {
        int err = quire_layer_check(specs[i]);
        if (err != QUIRE_OK)
            return err;
    }
    return qr_spec_merge(specs, num_specs, merged);
}
