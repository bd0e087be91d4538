# Sourced by ./test --cross: the other architecture, cross-compiled and run under qemu.
case $(uname -m) in
  x86_64) cross_arch=arm64 cross_machine=aarch64 ;;
  *) cross_arch=amd64 cross_machine=x86_64 ;;
esac
cross_gcc=gcc-${cross_machine//_/-}-linux-gnu
if [ ! -e "/usr/lib/$cross_machine-linux-gnu/libcmocka.so" ] ||
  [ ! -e "/usr/lib/$cross_machine-linux-gnu/libjansson.so" ] || ! command -v qemu-$cross_machine-static >/dev/null; then
  dpkg --print-foreign-architectures | grep -qx $cross_arch || as_root dpkg --add-architecture $cross_arch
  install_packages "$cross_gcc" qemu-user-static libssl-dev:$cross_arch libxxhash-dev:$cross_arch \
    libcmocka-dev:$cross_arch libjansson-dev:$cross_arch libzstd-dev:$cross_arch \
    zlib1g-dev:$cross_arch || exit 1
fi
cross_log=$logs/cross-build.log
if { cmake -S . -B build/$cross_arch -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUIRE_WERROR=ON \
  -DCMAKE_TOOLCHAIN_FILE=cmake/cross.cmake -DQUIRE_CROSS_MACHINE=$cross_machine &&
  cmake --build build/$cross_arch; } >$cross_log 2>&1; then
  # What looks at the repository rather than at the library has been run natively; emulation is slow.
  run_tests $cross_arch -LE build -E model_explore
  emulator=qemu-$cross_machine-static
  run_long $cross_arch model_explore --scope small
  emulator=
else
  fail $cross_arch "build" $cross_log
fi
