/* api/model_api.c - quire/model.h: argument checks, then one call inward. */
#include "plan/model.h"

int quire_model_layers(const quire_model_params *params, quire_layer_spec *layers,
                       uint32_t capacity, uint32_t *num_layers)
{
    quire_model_params p;
    if (num_layers == NULL || (layers == NULL && capacity > 0))
        return QUIRE_E_ARGUMENT;
    int err = qr_model_params_read(&p, params);
    return err == QUIRE_OK ? qr_model_layers(&p, layers, capacity, num_layers) : err;
}
