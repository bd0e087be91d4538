/* model/plain.h - whether this is a plain build. Sanitizers make everything several times slower
 * and bring their own allocator; the tests do less then. */
#ifndef MODEL_PLAIN_H
#define MODEL_PLAIN_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MODEL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define MODEL_SANITIZED 1
#endif
#endif

/* Whole-structure assertions at every step are slower still. */
#if defined(MODEL_SANITIZED) || defined(QUIRE_HOSTILE) || QUIRE_ASSERT_LEVEL >= 3
#define MODEL_SLOW 1
#endif

#endif
