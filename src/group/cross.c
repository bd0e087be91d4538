/* group/cross.c - cross attention: room for the encoder's tokens, made once, never cached. */
#include "group/group.h"

static qr_need cross_need(const qr_group *group, const qr_want *want)
{
    qr_want own = *want;
    own.hits = NULL;
    own.keeps_hits = false;
    own.total_computed = 0;
    own.num_certain = 0;
    own.num_external = 0;
    return qr_group_need_for(group, &own, want->num_encoder_tokens);
}

static uint32_t cross_allocate(qr_group *group, const qr_want *want)
{
    return qr_group_allocate_for(group, want->row, want->num_encoder_tokens);
}

const qr_group_ops qr_cross_ops = {
    .need = cross_need,
    .allocate = cross_allocate,
};
