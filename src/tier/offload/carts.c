#include "tier/offload/carts.h"

#include "base/assert.h"

void qr_carts_init(quire_offload *o)
{
    o->free_cart = QR_NIL;
    o->num_fresh_carts = o->num_carts;
}

/* Memory that was used lately before memory that never was. */
static uint32_t take_cart(quire_offload *o, uint32_t prev)
{
    uint32_t cart = o->free_cart;
    if (cart != QR_NIL) {
        o->free_cart = o->carts[cart].next;
    } else {
        qr_assert(o->num_fresh_carts > 0); /* there are enough for all blocks: plan.c */
        cart = o->num_carts - o->num_fresh_carts--;
    }
    o->carts[cart].next = QR_NIL;
    o->carts[cart].prev = prev;
    o->carts[cart].count = 0;
    return cart;
}

void qr_carts_return(quire_offload *o, uint32_t cart)
{
    o->carts[cart].next = o->free_cart;
    o->free_cart = cart;
}

void qr_carts_add(quire_offload *o, uint32_t *first, uint32_t *last, const quire_block *gpu,
                  const quire_block *cpu, uint32_t n)
{
    for (uint32_t done = 0; done < n;) {
        if (*first == QR_NIL) {
            *first = *last = take_cart(o, QR_NIL);
        } else if (o->carts[*last].count == QR_CART_PAIRS) {
            uint32_t cart = take_cart(o, *last);
            o->carts[*last].next = cart;
            *last = cart;
        }
        qr_offload_cart *cart = &o->carts[*last];
        uint32_t room = QR_CART_PAIRS - cart->count;
        uint32_t part = n - done < room ? n - done : room;
        memcpy(cart->gpu + cart->count, gpu + done, part * sizeof *gpu);
        memcpy(cart->cpu + cart->count, cpu + done, part * sizeof *cpu);
        cart->count += part;
        done += part;
    }
}
