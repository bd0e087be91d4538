/* api/layer_api.c - quire/layer.h: argument checks, then one call inward. */
#include "group/spec.h"

uint64_t quire_layer_page_bytes(const quire_layer_spec *spec)
{
    return spec == NULL ? 0 : qr_spec_page_bytes(spec);
}
