#include "prices.h"

#include "model/gpu.h"
#include "output/failure.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_PRICE = 1000000 };

/* "H100=2.5" or "2.5"; false: it is neither. */
static bool read_one(const char *text, size_t length, prices *p)
{
    char part[64];
    char *end;
    if (length >= sizeof part || p->num == PRICES_MAX)
        return false;
    memcpy(part, text, length);
    part[length] = '\0';
    size_t name = strcspn(part, "=");
    bool has_name = part[name] == '=';
    const char *number = has_name ? part + name + 1 : part;
    if (name == 0 || (has_name && name >= PRICES_NAME_BYTES))
        return false;
    memcpy(p->list[p->num].gpu, part, has_name ? name : 0);
    p->list[p->num].price = strtod(number, &end);
    return number[0] >= '0' && number[0] <= '9' && *end == '\0' && p->list[p->num].price > 0 &&
           p->list[p->num++].price <= MAX_PRICE;
}

int prices_read(const char *text, prices *p)
{
    *p = (prices){0};
    for (const char *at = text; at != NULL;) {
        size_t length = strcspn(at, ",");
        gpu known;
        if (!read_one(at, length, p))
            return fail_with("invalid value \"%.100s\" for --gpu-cost (expected PRICE, or "
                             "GPU=PRICE with commas between them; a PRICE is above 0, to %d)",
                             text, MAX_PRICE);
        const char *name = p->list[p->num - 1].gpu;
        if (name[0] != '\0' && !gpu_find(name, &known))
            return fail_with("--gpu-cost: there is no GPU \"%s\"; quire plan --list shows them",
                             name);
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return 0;
}

int prices_find(const prices *p, const char *name, double *price)
{
    *price = 0;
    for (uint32_t i = 0; i < p->num; i++)
        if (p->list[i].gpu[0] == '\0' || strcasecmp(p->list[i].gpu, name) == 0)
            *price = p->list[i].price;
    if (p->num > 0 && *price == 0)
        return fail_with("--gpu-cost has no price for %s", name);
    return 0;
}
