#include "tier/offload_carts.h"

#include "base/assert.h"

void qr_carts_init(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_carts; i++)
        o->carts[i].next = i + 1 < o->num_carts ? i + 1 : QR_NIL;
    o->free_cart = 0;
}

static uint32_t take_cart(quire_offload *o)
{
    uint32_t cart = o->free_cart;
    qr_assert(cart != QR_NIL); /* there are enough for all blocks: offload_plan.c */
    o->free_cart = o->carts[cart].next;
    o->carts[cart].next = QR_NIL;
    o->carts[cart].count = 0;
    return cart;
}

void qr_carts_add(quire_offload *o, uint32_t *first, uint32_t *last, const quire_block *gpu,
                  const quire_block *cpu, uint32_t n)
{
    for (uint32_t done = 0; done < n;) {
        if (*first == QR_NIL) {
            *first = *last = take_cart(o);
        } else if (o->carts[*last].count == QR_CART_PAIRS) {
            uint32_t cart = take_cart(o);
            o->carts[*last].next = cart;
            *last = cart;
        }
        qr_offload_cart *cart = &o->carts[*last];
        uint32_t count = cart->count;
        for (; count < QR_CART_PAIRS && done < n; count++, done++) {
            cart->pairs[count].gpu = gpu[done];
            cart->pairs[count].cpu = cpu[done];
        }
        cart->count = count;
    }
}

uint32_t qr_carts_empty(quire_offload *o, uint32_t cart, quire_block *gpu, quire_block *cpu,
                        uint32_t *n)
{
    qr_offload_cart *c = &o->carts[cart];
    uint32_t next = c->next;
    uint32_t count = c->count;
    uint32_t at = *n;
    for (uint32_t i = 0; i < count; i++, at++) {
        gpu[at] = c->pairs[i].gpu;
        cpu[at] = c->pairs[i].cpu;
    }
    *n = at;
    c->next = o->free_cart;
    o->free_cart = cart;
    return next;
}
