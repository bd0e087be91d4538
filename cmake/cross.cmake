# Toolchain of ./test --cross: Debian's cross compiler, tests under qemu's user emulation.
#   -DQUIRE_CROSS_MACHINE=aarch64 | x86_64
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QUIRE_CROSS_MACHINE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${QUIRE_CROSS_MACHINE})
set(triple ${QUIRE_CROSS_MACHINE}-linux-gnu)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
set(CMAKE_FIND_ROOT_PATH /usr/lib/${triple} /usr/${triple} /usr)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(OPENSSL_CRYPTO_LIBRARY /usr/lib/${triple}/libcrypto.so CACHE FILEPATH "")
set(OPENSSL_INCLUDE_DIR /usr/include CACHE PATH "")
set(CMOCKA_LIBRARY /usr/lib/${triple}/libcmocka.so CACHE FILEPATH "")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${QUIRE_CROSS_MACHINE}-static)
