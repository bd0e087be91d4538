# Flags for everything that is built here; nothing of this reaches a program that links the library.
add_library(quire_build_options INTERFACE)
target_compile_options(quire_build_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wundef -Wvla -fno-strict-overflow $<$<BOOL:${QUIRE_WERROR}>:-Werror>)
if(QUIRE_SANITIZE)
  target_compile_options(quire_build_options INTERFACE
    -fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(quire_build_options INTERFACE -fsanitize=${QUIRE_SANITIZE})
else()
  target_compile_options(quire_build_options INTERFACE -fstack-protector-strong)
  target_link_options(quire_build_options INTERFACE LINKER:-z,relro,-z,now)
endif()
