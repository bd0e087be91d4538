/* cli/live/words.h - texts as tokens, without a model's tokenizer.
 *
 *      "Hello world"  ──►  "Hell" "o wo" "rld"         four bytes of ASCII are a token,
 *      "これは"        ──►  "こ" "れ" "は"               three bytes where one of four is not ASCII
 *
 * Every token says its bytes, so that different texts have different tokens, texts with a common
 * beginning have common tokens (up to the token in which they differ), and tokens can be turned
 * back into text:
 *
 *      0 ...             b0 | b1 << 7 | b2 << 14 | b3 << 21     ASCII; zero bytes at the end of a
 *      1 << 28 | ...     b0 | b1 << 8 | b2 << 16                text
 *      1 << 29 | n       marks of a chat, and the end of an answer
 *
 * A chat is, for each message, the mark of its role, the tokens of its content, and the end mark;
 * then the mark of the assistant. Each content begins with a new token: the answer that a client
 * sends back in the next turn has the tokens with which it was generated.
 */
#ifndef QUIRE_CLI_LIVE_WORDS_H
#define QUIRE_CLI_LIVE_WORDS_H

#include <quire/config.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum words_mark {
    WORDS_END = 1 << 29, /* of a message; a model that generates it has ended its answer */
    WORDS_SYSTEM,
    WORDS_USER,
    WORDS_ASSISTANT,
    WORDS_TOOL,
    WORDS_DEVELOPER
} words_mark;

/* Bytes of a token's text; at most WORDS_BYTES. */
enum { WORDS_BYTES = 4 };

/* At most so many tokens as the text has bytes; the text has no zero bytes. Returns how many. */
size_t words_of_text(const char *text, size_t bytes, quire_token *tokens);
/* The text of a token, without a zero byte at its end; returns its bytes. A mark, and a number that
 * is no token, have none. */
size_t words_text(quire_token token, char text[WORDS_BYTES]);
/* The mark of "system", "user", ...; 0: there is no such role. */
quire_token words_role(const char *role);

/* What a model would answer: words of four bytes, the same for the same prompt. */
uint64_t words_content(const quire_token *prompt, uint32_t num_tokens);
quire_token words_answer(uint64_t content, uint32_t place);

#endif
