#include "words.h"
#include "trace/content.h"

#include <string.h>

enum { ASCII_BYTES = 4, OTHER_BYTES = 3, OTHER = 1 << 28, MARK = 1 << 29 };

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

static quire_token join(const char *text, size_t bytes, unsigned bits)
{
    uint32_t token = 0;
    for (size_t i = 0; i < bytes; i++)
        token |= (uint32_t)(unsigned char)text[i] << bits * i;
    return (quire_token)token;
}

size_t words_of_text(const char *text, size_t bytes, quire_token *tokens)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < ASCII_BYTES ? bytes - at : ASCII_BYTES;
        if (is_ascii(text + at, n)) {
            tokens[count++] = join(text + at, n, 7);
        } else {
            n = n < OTHER_BYTES ? n : OTHER_BYTES;
            tokens[count++] = OTHER | join(text + at, n, 8);
        }
        at += n;
    }
    return count;
}

size_t words_text(quire_token token, char text[WORDS_BYTES])
{
    size_t n = 0;
    if (token < 0 || token >= MARK)
        return 0;
    unsigned bits = token < OTHER ? 7 : 8;
    uint32_t rest = (uint32_t)token & (OTHER - 1);
    while (rest != 0 && n < WORDS_BYTES) {
        text[n++] = (char)(rest & ((1u << bits) - 1));
        rest >>= bits;
    }
    return n;
}

quire_token words_role(const char *role)
{
    static const struct {
        const char *name;
        quire_token mark;
    } roles[] = {{"system", WORDS_SYSTEM},
                 {"user", WORDS_USER},
                 {"assistant", WORDS_ASSISTANT},
                 {"tool", WORDS_TOOL},
                 {"developer", WORDS_DEVELOPER}};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(roles[i].name, role) == 0)
            return roles[i].mark;
    return 0;
}

uint64_t words_content(const quire_token *prompt, uint32_t num_tokens)
{
    uint64_t content = num_tokens;
    for (uint32_t i = 0; i < num_tokens; i++)
        content = content_of(1, content, (uint64_t)prompt[i]);
    return content;
}

quire_token words_answer(uint64_t content, uint32_t place)
{
    static const char list[][ASCII_BYTES + 1] = {
        " the", " any", " and", " air", " boy", " car", " top", " own", " ate", " but", " web",
        " her", " all", " one", " two", " new", " old", " day", " way", " sun", " sea", " sky",
        " red", " big", " far", " low", " run", " say", " see", " ask", " map", " key"};
    uint64_t word = content_of(2, content, place) % (sizeof list / sizeof list[0]);
    return join(list[word], ASCII_BYTES, 7);
}
